"""Adapt a pod template to this machine: the command, its paths and its variables. What cannot exist here is named.

The image is not used, so a path of the image has to become one of this machine. A missing absolute path is looked up
beside the job file by its last parts: `/app/train.py` becomes `train.py` there. `--map` names other pairs.
"""

from __future__ import annotations

import copy
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from podium_core.attempts.substitution import ARGS
from podium_local.errors import Kind, LocalError

CONTAINER = "spec.template.spec.containers[0]"
INTERPRETERS = frozenset({"python", "python3"})
SCRIPTS = (".py", ".sh")
NOT_USED = "localhost/not-used"  # image of a job that names none
PLACEHOLDER = "$(podium."


@dataclass(frozen=True, slots=True)
class Site:
    """Where a job runs.

    `beside`: folder of the job file. `here`: the current folder. `command`: replaces the container's command. `paths`:
    path in the image to path on this machine. `kept`: paths that differ from trial to trial (checkpoint.path).
    """

    beside: Path
    here: Path
    command: tuple[str, ...] = ()
    paths: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Adapted:
    """Adapted template, and what differs from a cluster, as sentences."""

    template: dict[str, Any]
    notes: tuple[str, ...]


def with_command(manifest: Mapping[str, Any], command: tuple[str, ...]) -> dict[str, Any]:
    """Return the manifest with another command, and with an image where it names none.

    A command without a placeholder gets all parameters at its end.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(manifest))
    containers = (((changed.get("spec") or {}).get("template") or {}).get("spec") or {}).get("containers")
    if not isinstance(containers, list) or not containers or not isinstance(containers[0], dict):
        return changed  # validation names what is missing
    containers[0].setdefault("image", NOT_USED)
    if command:
        words = list(command) if any(PLACEHOLDER in word for word in command) else [*command, ARGS]
        containers[0] |= {"command": words, "args": []}
    return changed


def adapt(template: Mapping[str, Any], site: Site) -> Adapted:
    """Return the template for this machine. Raises LocalError for what cannot run here."""
    changed: dict[str, Any] = copy.deepcopy(dict(template))
    pod: dict[str, Any] = changed["spec"]
    main: dict[str, Any] = pod["containers"][0]
    notes = list(_left_out(pod, main, site))
    if not main.get("command"):
        text = f"{CONTAINER}.command is missing, and the entry point of an image is not known here; give the command: "
        raise LocalError(Kind.FAILED, "CommandMissing", f"{text}podium run JOB.yaml -- python train.py")
    folder = _folder(main, site)
    main["workingDir"] = str(folder)
    words = [*main["command"], *(main.get("args") or [])]
    found = [_on_this_machine(word, site, notes) for word in words]
    main["command"], main["args"] = [_program(found[0], folder, site, notes), *found[1:]], []
    _check_script(main["command"], folder)
    main["env"] = [_variable(dict(one), number, site, notes) for number, one in enumerate(main.get("env") or [])]
    return Adapted(changed, tuple(notes))


def mapped(text: str, paths: Mapping[str, str]) -> str:
    """Return a word with each of these paths replaced, where it is a whole path or the beginning of one."""
    for source, target in sorted(paths.items(), key=lambda pair: -len(pair[0])):
        pattern = rf"(^|[=:,\s'\"]){re.escape(source)}(?=$|[/:,\s'\"])"
        text = re.sub(pattern, lambda match, target=target: match[1] + target, text)  # type: ignore[misc]
    return text


def _left_out(pod: Mapping[str, Any], main: Mapping[str, Any], site: Site) -> Iterator[str]:
    """Yield what a pod would have and a process here has not."""
    for one in pod.get("initContainers") or []:
        yield f"spec.template.spec.initContainers: {one.get('name')} does not run here; do its work before `podium run`"
    for one in pod["containers"][1:]:
        yield f"spec.template.spec.containers: {one.get('name')} does not run here; start it yourself if it is needed"
    if main.get("envFrom"):
        yield f"{CONTAINER}.envFrom: there are no Secrets and ConfigMaps here; export their variables in this shell"
    for mount in main.get("volumeMounts") or []:
        path = str(mount.get("mountPath"))
        if not Path(path).exists() and path not in site.paths and path not in site.kept:
            cure = f"give --map {path}=FOLDER, or create it"
            yield f"{CONTAINER}.volumeMounts: {path} does not exist here; {cure}"


def _folder(main: Mapping[str, Any], site: Site) -> Path:
    """Return the folder in which the command starts."""
    given = mapped(str(main.get("workingDir") or ""), site.paths)
    if site.command and not given:
        return site.here
    if not given:
        return site.beside
    if Path(given).is_dir():
        return Path(given).absolute()
    return site.here if site.command else site.beside


def _on_this_machine(word: str, site: Site, notes: list[str]) -> str:
    """Return a word of the command with paths of this machine."""
    text = mapped(word, site.paths)
    flag, equals, path = text.rpartition("=")
    if text != word or not path.startswith("/") or PLACEHOLDER in word or Path(path).exists():
        return text
    if any(path == one or path.startswith(f"{one}/") for one in site.kept):
        return word
    parts = PurePosixPath(path).parts[1:]
    for first in range(len(parts)):
        beside = site.beside.joinpath(*parts[first:])
        if beside.exists():
            notes.append(f"{CONTAINER}.command: {path} does not exist here; {beside} is used")
            return f"{flag}{equals}{beside}"
    return word


def _program(word: str, folder: Path, site: Site, notes: list[str]) -> str:
    """Return the program, which must exist."""
    if PLACEHOLDER in word:
        return word
    path = site.environ.get("PATH", os.defpath)
    if "/" not in word and (first := shutil.which(word, path=path)):
        notes.extend(_other_environment(word, first))
        return word  # found again at each start, so that another environment does not change the job
    at = shutil.which(str(folder / word), path=path) if "/" in word else None
    if at is None and "/" in word:
        at = shutil.which(PurePosixPath(word).name, path=path)  # an interpreter at another place in the image
    if at is None and PurePosixPath(word).name in INTERPRETERS:
        at = sys.executable
    if at is None:
        text = f"{CONTAINER}.command: {word!r} is not a program on this machine; install it, or give the command: "
        raise LocalError(Kind.FAILED, "CommandNotFound", f"{text}podium run JOB.yaml -- python train.py")
    return str(Path(at).absolute())


def _other_environment(word: str, program: str) -> Iterator[str]:
    """Yield a note on an interpreter outside the virtual environment in which Podium is installed."""
    in_environment = sys.prefix != sys.base_prefix
    if in_environment and word in INTERPRETERS and Path(program).absolute().parent != Path(sys.prefix, "bin"):
        cure = f"if a trial lacks a module, activate {sys.prefix}"
        yield f"{CONTAINER}.command: {word} is {program}, not that of Podium's environment; {cure}"


def _check_script(words: list[str], folder: Path) -> None:
    """Refuse a script that does not exist: every trial would fail."""
    script = next((word for word in words[1:] if not word.startswith("-")), "")
    if script.endswith(SCRIPTS) and PLACEHOLDER not in script and not (folder / script).is_file():
        text = f"{CONTAINER}.command: {script} does not exist in {folder}; correct the path, map it with --map "
        text += f"{PurePosixPath(script).parent}=FOLDER, or give the command: podium run JOB.yaml -- python train.py"
        raise LocalError(Kind.FAILED, "ScriptMissing", text)


def _variable(variable: dict[str, Any], number: int, site: Site, notes: list[str]) -> dict[str, Any]:
    """Return a variable whose value is known here; one of a Secret comes from the environment of this process."""
    name = str(variable.get("name"))
    if isinstance(variable.get("value"), str):
        return {**variable, "value": mapped(variable["value"], site.paths)}
    if "valueFrom" not in variable:
        return variable
    where = f"{CONTAINER}.env[{number}].valueFrom"
    if name not in site.environ:
        text = f"{where}: there are no Secrets, ConfigMaps and pod fields here; export {name} in this shell first"
        raise LocalError(Kind.FAILED, "VariableUnknown", text)
    notes.append(f"{where}: {name} is taken from this shell")
    return {"name": name, "inherit": True}
