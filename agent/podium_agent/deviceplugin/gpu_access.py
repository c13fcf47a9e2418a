"""How GPUs reach a container: as CDI devices where a specification of the node names them, else by their device nodes.

The container runtime adds what a CDI specification lists for a device: its nodes and the driver's libraries. NVIDIA's
specifications also set NVIDIA_VISIBLE_DEVICES to void, so the environment of a container adds no other GPU.

The files of the node are read through the root of its first process, which the agent sees in the host's PID namespace.
They may be written at any time, for example by a driver that is installed after the agent.
"""

from __future__ import annotations

import logging
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

log = logging.getLogger(__name__)
# of `nvidia-ctk cdi generate`, and of NVIDIA's device plugin where it runs beside Podium
KINDS = ("nvidia.com/gpu", "k8s.device-plugin.nvidia.com/gpu")
# A device of an earlier folder hides one of the same name in a later folder. /var/run is /run on most nodes, but an
# absolute link cannot be followed below another root.
FOLDERS = ("var/run/cdi", "run/cdi", "etc/cdi")
MAX_BYTES = 2**20
MAX_FILES = 64
CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")


class _NamedDevice(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str = Field(min_length=1)


class Specification(BaseModel):
    """A CDI specification, as far as the agent needs it: the container runtime reads the rest."""

    model_config = ConfigDict(frozen=True)

    kind: str
    devices: tuple[_NamedDevice, ...]


class InvalidSpecificationError(ValueError):
    """A file in a CDI folder that is not a specification; the text names the problem."""


@dataclass(frozen=True, slots=True)
class Access:
    """What an allocation adds to a container: CDI device names, or paths of device nodes."""

    cdi: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


def parse_specification(text: str) -> Specification:
    """Return the specification in a file, which is JSON or YAML. Pure."""
    try:
        return Specification.model_validate(YAML(typ="safe", pure=True).load(text))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the file"
        raise InvalidSpecificationError(f"{field}: {first['msg']}") from error
    except (YAMLError, ValueError, RecursionError) as error:
        raise InvalidSpecificationError("it is neither JSON nor YAML") from error


def device_names(folders: Iterable[Iterable[Specification]]) -> Mapping[str, str]:
    """Return the CDI device of each GPU, by UUID, from the specifications of each folder. Pure.

    The folders are in the order of their precedence. A device that two files of one folder define is left out: the
    container runtime refuses it.
    """
    found: dict[tuple[str, str], bool] = {}  # by kind and name: whether one file alone defines it
    for specifications in folders:
        count = Counter((spec.kind, name) for spec in specifications for name in {one.name for one in spec.devices})
        found = {device: number == 1 for device, number in count.items()} | found
    usable = [(kind, name) for (kind, name), alone in found.items() if alone and kind in KINDS]
    usable.sort(key=lambda device: KINDS.index(device[0]), reverse=True)  # the preferred kind comes last and remains
    return {name: f"{kind}={name}" for kind, name in usable}


class GpuAccess:
    """Finds out how the node's GPUs reach containers. A file is parsed again only after it has changed."""

    def __init__(self, host_root: Path) -> None:
        self._root = host_root
        self._parsed: dict[Path, tuple[tuple[int, ...], Specification | None]] = {}
        self._named: Mapping[str, str] = {}

    def refresh(self) -> None:
        """Read the CDI specifications that are new or have changed."""
        parsed: dict[Path, tuple[tuple[int, ...], Specification | None]] = {}
        folders: list[list[Specification]] = []
        for folder in FOLDERS:
            specifications = []
            for path, signature in _files(self._root / folder):
                known = self._parsed.get(path)
                parsed[path] = known if known and known[0] == signature else (signature, _read(path, signature))
                if (specification := parsed[path][1]) is not None:
                    specifications.append(specification)
            folders.append(specifications)
        named = device_names(folders)
        if named != self._named:
            log.info("GPUs that a CDI specification names: %s", ", ".join(named.values()) or "none")
        self._parsed, self._named = parsed, named

    def of(self, minors: Mapping[str, int | None]) -> Access:
        """Return the access to GPUs with these UUIDs and minor numbers.

        Without a CDI device for each GPU these are the device nodes, and nothing if the node has none of its own.
        """
        self.refresh()
        if all(uuid in self._named for uuid in minors):
            return Access(cdi=tuple(self._named[uuid] for uuid in minors))
        nodes = [f"/dev/nvidia{minor}" for minor in minors.values()]
        if None in minors.values() or not self._exist(nodes):
            return Access()
        return Access(nodes=(*nodes, *(node for name in CONTROL_NODES if self._exist([node := f"/dev/{name}"]))))

    def _exist(self, nodes: Collection[str]) -> bool:
        return all(_is_device(self._root / node.removeprefix("/")) for node in nodes)


def _is_device(path: Path) -> bool:
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False


def _files(folder: Path) -> Iterator[tuple[Path, tuple[int, ...]]]:
    """Return the specification files in a folder, each with what changes when it is written."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix in (".json", ".yaml"))
    except OSError:
        return  # there is no such folder
    for path in paths[:MAX_FILES]:
        try:
            status = path.stat()
        except OSError:
            continue  # removed meanwhile
        yield path, (status.st_ino, status.st_size, status.st_mtime_ns)


def _read(path: Path, signature: tuple[int, ...]) -> Specification | None:
    size = signature[1]
    try:
        if size > MAX_BYTES:
            raise InvalidSpecificationError(f"it has {size} bytes, more than {MAX_BYTES}")
        with path.open("rb") as file:
            return parse_specification(file.read(MAX_BYTES).decode(errors="replace"))
    except (OSError, InvalidSpecificationError) as error:
        log.warning("CDI specification %s is not used: %s; write it again with `nvidia-ctk cdi generate`", path, error)
        return None


def minors_of(gpus: Iterable[Any], uuids: Collection[str]) -> Mapping[str, int | None]:
    """Return the minor numbers of the GPUs with these UUIDs. Pure."""
    return {gpu.uuid: gpu.sample.minor for gpu in gpus if gpu.uuid in uuids}
