"""Decide what `podium logs` does next, from the state of the trial and of the pod. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from podium_cli.exit_codes import CliError, Exit
from podium_core.domain.phase import is_final
from podium_core.schema.trial import HyperParamTrial
from podium_views import formatting

Pod = dict[str, Any]


class Action(Enum):
    """What to do next."""

    READ = "read"
    WAIT = "wait"
    NEXT = "next"
    END = "end"


@dataclass(frozen=True, slots=True)
class Step:
    """The next action. `text` says what is waited for."""

    action: Action
    text: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """The attempt whose log is read. `fixed`: only this one; `complete`: its log was read to the end."""

    attempt: int
    fixed: bool
    follow: bool
    complete: bool = False


def first_attempt(trial: HyperParamTrial, wanted: int | None) -> int:
    """Return the attempt to start with; `wanted` is None for the present one and -1 for the one before it."""
    now = trial.status.attempt
    if wanted is None:
        return now
    chosen = now - 1 if wanted == -1 else wanted
    name = trial.metadata.name
    if chosen < 0:
        message = f"{name} is in its first attempt (0), so there is no log before it; omit --previous"
        raise CliError(Exit.NOT_FOUND, "NoPreviousAttempt", message)
    if chosen > now:
        message = f"--attempt: {name} has had the attempts 0 to {now} (got {chosen}); name one of them"
        raise CliError(Exit.NOT_FOUND, "NoSuchAttempt", message)
    return chosen


def next_step(trial: HyperParamTrial, pod: Pod | None, reading: Reading) -> Step:
    """Return what to do next, or raise CliError if there is nothing to read and nothing to wait for."""
    present = trial.status.attempt == reading.attempt
    may_continue = reading.follow and not reading.fixed and not (present and is_final(trial.status.phase))
    ended = reading.complete or pod is None or (not has_started(pod) and pod_ended(pod))
    if not ended:
        if pod is not None and has_started(pod):
            return Step(Action.READ)
        if reading.follow:
            return Step(Action.WAIT, f"{state(trial)}; {waiting(pod)}")
        message = f"{state(trial)}; {waiting(pod)}, so there is no log yet; -f waits for it"
        raise CliError(Exit.NOT_FOUND, "LogNotReady", message)
    if may_continue:
        if not present:
            return Step(Action.NEXT)
        return Step(Action.WAIT, f"{state(trial)}; the log continues with its next pod")
    if reading.complete:
        return Step(Action.END)
    if present and not is_final(trial.status.phase):
        message = f"{state(trial)}; it has no pod, so there is no log; -f waits for one"
        raise CliError(Exit.NOT_FOUND, "LogNotReady", message)
    message = f"{state(trial)}; the pod of attempt {reading.attempt} does not exist any more, and its log went with it"
    raise CliError(Exit.NOT_FOUND, "LogGone", f"{message}. Collect the logs of the cluster to keep them")


def state(trial: HyperParamTrial) -> str:
    """Return the trial, its phase and the reason."""
    status = trial.status
    reason = formatting.cause(status.reason, status.message)
    return f"{trial.metadata.name} is {status.phase.value}" + (f" ({reason.rstrip('.')})" if reason else "")


def waiting(pod: Pod | None) -> str:
    """Return why the main container of a pod has not started."""
    if pod is None:
        return "it has no pod"
    waits = _container_state(pod).get("waiting") or {}
    reason = str(waits.get("reason") or (pod.get("status") or {}).get("phase") or "Pending")
    message = formatting.clean(str(waits.get("message") or ""))
    return f"its container has not started ({formatting.clean(reason)}{': ' if message else ''}{message})"


def main_container(pod: Pod) -> str:
    """Return the name of the container that trains: the first one."""
    return str(pod["spec"]["containers"][0]["name"])


def has_started(pod: Pod) -> bool:
    """Return whether the main container runs or has run, so that it has a log."""
    return bool({"running", "terminated"} & set(_container_state(pod)))


def has_terminated(pod: Pod) -> bool:
    """Return whether the main container has ended."""
    return "terminated" in _container_state(pod)


def pod_ended(pod: Pod) -> bool:
    """Return whether the pod has ended."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _container_state(pod: Pod) -> dict[str, Any]:
    name = main_container(pod)
    for one in (pod.get("status") or {}).get("containerStatuses") or ():
        if one.get("name") == name:
            return dict(one.get("state") or {})
    return {}
