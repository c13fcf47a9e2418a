"""The page "Install without internet access": its commands install a release from a registry that only the nodes reach.

It is the last test, because it replaces Podium of the cluster by the release.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from page_commands import section

from podium_devcluster import versions
from podium_devcluster.artifacts import debian, tiny_images
from podium_devcluster.runtime import pki, registry
from podium_devcluster.runtime.network import netns_path
from podium_devcluster.shell import CommandError
from podium_devcluster.startup import API_SERVER

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/install-offline.md"
NAMESPACE = "podium-system"
NODE = "node-1"  # its loopback reaches the registry, and its network the API server
REPOSITORY = "registry.example/podium"  # the chart's own repository, which no node reaches
FLAGS = {
    "helm push": "--plain-http",
    "helm install": "--plain-http",
    "skopeo copy": "--dest-tls-verify=false",
    "skopeo inspect": "--tls-verify=false",
}
LEFTOVERS = "deployments,daemonsets,configmaps,jobs,services,serviceaccounts"
Site = Any


@dataclass(frozen=True)
class Desk:
    """The page's reader: a shell in the network of a node, which has no other network, in the folder of the release."""

    site: Site
    folder: Path
    home: Path
    programs: tuple[Path, ...]

    def run(self, script: str, seconds: float = 120) -> str:
        """Run lines of the page, with the flags that it names for a registry without TLS."""
        for command, flag in FLAGS.items():
            script = script.replace(command, f"{command} {flag}")
        folders = [*{str(program.parent): None for program in self.programs}, os.environ["PATH"]]
        enter = ["nsenter", f"--net={netns_path(self.site.cluster.name, NODE)}", "--"]
        done = subprocess.run(
            [*enter, "bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env={
                "HOME": str(self.home),
                "KUBECONFIG": str(self.home / "kubeconfig"),
                "PATH": os.pathsep.join(folders),
                "VERSION": version(),
                "KUBERNETES": f"v{versions.KUBERNETES}",
                "REGISTRY": registry.ADDRESS,
                "REGISTRY_USER": "reader",
                "REGISTRY_PASSWORD": "unused",
            },
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def version() -> str:
    sys.path.insert(0, str(ROOT / "tools"))
    found: str = importlib.import_module("sbom").project_version()
    return found


@pytest.fixture(scope="module")
def desk(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A reader with all files of a release, and the nodes' registry."""
    cluster = site.cluster
    try:
        (skopeo,) = debian.unpack_programs(cluster.cache, "skopeo", ("skopeo",))
        registry.ensure(cluster.cache)
    except (CommandError, debian.PackageError) as error:
        pytest.skip(f"cannot get skopeo and {registry.PACKAGE} with apt: {error}")
    if not cluster.processes.alive(f"registry@{NODE}"):
        registry.start(cluster)
    sys.path.insert(0, str(ROOT / "tools"))
    release = importlib.import_module("release")
    folder, home = tmp_path_factory.mktemp("release"), tmp_path_factory.mktemp("home")
    release.build(release.Plan(folder, REPOSITORY, uncommitted=True))
    # the page's first part needs the internet; this is the image of the same program that the cluster has
    scheduler = cluster.cache.images / tiny_images.archive_name(tiny_images.SCHEDULER)
    (folder / "kube-scheduler.oci.tar").symlink_to(scheduler)
    pki.write_kubeconfig(home / "kubeconfig", API_SERVER, cluster.paths.pki, "admin", "closed-network")
    # Debian's package brings this file; here the program alone is unpacked
    policy = home / ".config/containers/policy.json"
    policy.parent.mkdir(parents=True)
    policy.write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
    return Desk(site, folder, home, (skopeo, Path(site.place.tool("helm"))))


def test_the_page_installs_the_release_by_digest_and_uninstall_leaves_nothing(site: Site, desk: Desk) -> None:
    remove_podium(site)
    for block in section(PAGE, "Copy them into your registry"):
        desk.run(block, 300)
    digest = released_digest(desk)
    namespace, secret, values, install, test = section(PAGE, "Install")
    site.kubectl("delete", "namespace", NAMESPACE, "--timeout=90s", timeout=100)
    desk.run(namespace)
    desk.run(secret)
    desk.run(values)
    # the fake driver's paths; a reader adds other values in the same way
    agent = yaml.safe_load((ROOT / "examples/demo-values.yaml").read_text())["agent"]
    (desk.folder / "driver.yaml").write_text(json.dumps({"agent": agent}))
    desk.run(install.replace("--values values.yaml", "--values values.yaml --values driver.yaml"), 360)
    check_images(site, digest)
    assert "Phase:          Succeeded" in desk.run(test, 150)
    remove_podium(site)
    assert desk.run(f"kubectl get {LEFTOVERS} -n {NAMESPACE} -l app.kubernetes.io/name=podium -o name") == ""


def released_digest(desk: Desk) -> str:
    """Return the digest in the list of images; the registry names the image by the same one."""
    lines = (desk.folder / f"podium-images-{version()}.txt").read_text().split()
    (name,) = (line for line in lines if line.startswith(REPOSITORY))
    digest = name.partition("@")[2]
    assert digest.startswith("sha256:")
    shown = desk.run(f"skopeo inspect --raw docker://$REGISTRY/podium@{digest} | sha256sum")
    assert shown.split()[0] == digest.removeprefix("sha256:")
    return digest


def check_images(site: Site, digest: str) -> None:
    """Every container of Podium runs from the closed registry, and Podium's own image by its digest."""
    images = set()
    for pod in site.objects("pods", "-n", NAMESPACE):
        for status in pod["status"]["containerStatuses"]:
            assert status["ready"], status
            images.add(status["imageID"])
    assert f"{registry.ADDRESS}/podium@{digest}" in images
    assert {image.partition("@")[0] for image in images} == {
        f"{registry.ADDRESS}/podium",
        f"{registry.ADDRESS}/kube-scheduler",
    }


def remove_podium(site: Site) -> None:
    """Uninstall Podium if it is installed, and wait until its pods are gone."""
    helm = site.place.tool("helm")
    installed = site.demo.call(site.place, [helm, "list", "-n", NAMESPACE, "-q"], 60, quiet=True).split()
    if installed:
        site.demo.call(site.place, [helm, "uninstall", "podium", "-n", NAMESPACE, "--wait"], 150, quiet=True)
    site.until("Podium's pods are gone", lambda: not site.objects("pods", "-n", NAMESPACE), 90)
