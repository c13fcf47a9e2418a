"""Names for pods: CoreDNS, built from its Go module, answers for the services and pods of a cluster.

A cluster has no DNS by default, because Podium needs none. Pods ask CoreDNS if the cluster was started with
`Cluster(name, kubelet=KubeletSettings(dns=True))`, which lets all kubelets write its address into resolv.conf.
"""

from __future__ import annotations

from podium_devcluster.artifacts.gomodule import GoModule, program_image
from podium_devcluster.cluster import Cluster
from podium_devcluster.paths import project_dir
from podium_devcluster.runtime.network import CLUSTER_DOMAIN, DNS_IP
from podium_devcluster.startup import ClusterError

MODULE = GoModule("coredns", "github.com/coredns/coredns", {"coredns": "github.com/coredns/coredns"}, seconds=240.0)
READY_SECONDS = 120


def install(cluster: Cluster) -> None:
    """Install CoreDNS, and wait until it answers. Another call accepts an installed one."""
    if not cluster.nodes:
        raise ClusterError(
            f"cluster {cluster.name} has no node that could run CoreDNS; start it with --nodes 1 or more"
        )
    folder = MODULE.ensure(cluster.cache, cluster.progress)
    image = f"localhost/coredns:v{MODULE.version}"
    archive = program_image(folder, "coredns", image, cluster.cache)
    with cluster.progress.step(f"CoreDNS {MODULE.version}"):
        cluster.load_images([archive])
        cluster.kubectl("apply", "-f", "-", stdin=manifest(image))
        rollout = ("rollout", "status", "deployment/coredns", f"--timeout={READY_SECONDS}s")
        cluster.kubectl("-n", "kube-system", *rollout, timeout=READY_SECONDS + 10)


def manifest(image: str) -> str:
    """Return CoreDNS's manifests. Pure."""
    text = (project_dir() / "devcluster" / "manifests" / "coredns.yaml").read_text()
    for word, value in (("IMAGE", image), ("DNS_IP", DNS_IP), ("CLUSTER_DOMAIN", CLUSTER_DOMAIN)):
        text = text.replace(word, value)
    return text
