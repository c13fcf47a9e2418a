"""Build Kubernetes' own programs, etcd, helm and kind from Go modules: no source checkout, no release download.

k8s.io/kubernetes replaces its staging modules by local folders that its module zip does not hold; each of them is
published on its own as v0.X.Y, so the same replace list with published versions builds. Cold it takes about six
minutes on two cores (shared packages compile once), warm seconds.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from podium_devcluster import versions
from podium_devcluster.golang import find_go
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.shell import run
from podium_devcluster.streaming import run_logged

KUBERNETES_PROGRAMS = (
    "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl", "kube-proxy", "kubeadm",
)  # fmt: skip
INSTALLED = {
    "helm": f"helm.sh/helm/v3/cmd/helm@v{versions.HELM}",
    "kind": f"sigs.k8s.io/kind@v{versions.KIND}",
}
BUILD_SECONDS = 3000.0


def module_file(upstream: str, version: str) -> str:
    """go.mod of a module that builds Kubernetes' programs, from upstream's own go.mod. Pure."""
    staging = re.findall(r"^\s*(k8s\.io/\S+) => \./staging", upstream, re.M)
    found = re.search(r"^go (\S+)", upstream, re.M)
    if not staging or found is None:
        raise ValueError(f"go.mod of k8s.io/kubernetes v{version} has no staging modules or no go line")
    go = found[1]
    lines = ["module kubernetes-binaries", f"go {go}", f"godebug default=go{'.'.join(go.split('.')[:2])}"]
    lines += ["require (", f"\tk8s.io/kubernetes v{version}", ")", "replace ("]
    lines += [f"\t{module} => {module} v0{version[1:]}" for module in staging]
    return "\n".join([*lines, ")"]) + "\n"


def tools_file(packages: list[str]) -> str:
    """Keeps the programs' needs in go.mod. Pure."""
    imports = "".join(f'\t_ "{package}"\n' for package in packages)
    return f"//go:build tools\n\npackage tools\n\nimport (\n{imports})\n"


def kubernetes_flags(version: str) -> str:
    where = "k8s.io/component-base/version"
    minor = version.split(".")[1]
    return f"-s -w -X {where}.gitVersion=v{version} -X {where}.gitMajor=1 -X {where}.gitMinor={minor}"


def build(name: str, version: str, target: Path, cache: Cache, progress: Progress) -> None:
    """`version` counts for Kubernetes' own programs; of the others there is one, in `versions`."""
    go = find_go(cache, progress)
    environment = {**os.environ, "CGO_ENABLED": "0"}
    if name in KUBERNETES_PROGRAMS:
        folder, package = _kubernetes_module(version, go, cache, progress), f"k8s.io/kubernetes/cmd/{name}"
        flags = kubernetes_flags(version)
    elif name == "etcd":
        folder, package, flags = _etcd_module(go, cache, progress), "go.etcd.io/etcd/server/v3", "-s -w"
    elif name in INSTALLED:
        _install(name, target, go, cache, progress)
        return
    else:
        raise KeyError(f"{name} cannot be built from Go modules")
    argv = [str(go), "build", "-trimpath", "-ldflags", flags, "-o", str(target), package]
    with progress.step(f"build {name} from Go modules") as step:
        run_logged(argv, log=_log(cache, name), step=step, timeout=BUILD_SECONDS, env=environment, cwd=folder)


def _kubernetes_module(version: str, go: Path, cache: Cache, progress: Progress) -> Path:
    folder = cache.build / f"kubernetes-{version}"
    if (folder / "go.sum").exists() and (folder / ".complete").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with progress.step("fetch Kubernetes' Go modules") as step:
        module = f"k8s.io/kubernetes@v{version}"
        said = run([str(go), "mod", "download", "-json", module], timeout=900, cwd=folder)
        (folder / "go.mod").write_text(module_file(Path(json.loads(said)["GoMod"]).read_text(), version))
        packages = [f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES_PROGRAMS]
        (folder / "tools.go").write_text(tools_file(packages))
        log = _log(cache, "modules")
        run_logged([str(go), "mod", "tidy"], log=log, step=step, timeout=900, cwd=folder)
    (folder / ".complete").touch()
    return folder


def _etcd_module(go: Path, cache: Cache, progress: Progress) -> Path:
    folder = cache.build / f"etcd-{versions.ETCD}"
    if (folder / ".complete").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text(f"module etcd-binary\n\ngo {'.'.join(map(str, versions.GO_MINIMUM))}.0\n")
    (folder / "tools.go").write_text(tools_file(["go.etcd.io/etcd/server/v3"]))
    with progress.step("fetch etcd's Go modules") as step:
        argv = [str(go), "get", f"go.etcd.io/etcd/server/v3@v{versions.ETCD}"]
        run_logged(argv, log=_log(cache, "modules"), step=step, timeout=900, cwd=folder)
    (folder / ".complete").touch()
    return folder


def _install(name: str, target: Path, go: Path, cache: Cache, progress: Progress) -> None:
    folder = cache.build / f"install-{name}-{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "CGO_ENABLED": "0", "GOBIN": str(folder)}
    try:
        with progress.step(f"build {name} from Go modules") as step:
            argv = [str(go), "install", "-trimpath", "-ldflags", "-s -w", INSTALLED[name]]
            run_logged(argv, log=_log(cache, name), step=step, timeout=BUILD_SECONDS, env=environment)
        (folder / name).replace(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _log(cache: Cache, name: str) -> Path:
    return cache.root / "log" / f"build-{name}.log"
