"""`python -m podium_agent.migration NAMESPACE POD CONTAINER [TARGET]`, experimental: a container of this node becomes
an
image. Run by hand in the agent of its node; prints one line of JSON, `{"image": ..., ...}` or `{"refused": CODE, ...}`.

The container is left frozen. A pod like its own that names the image instead of its own goes on from there; when that
works, delete the old pod. `--undo` lets the old one go on instead. SIGTERM and SIGINT undo what was begun.

One that the driver had moved off its GPUs (`"arrives": {...}` is printed too) waits in its new pod to be brought back
onto GPUs: by the agent, if it is a trial's pod with that as its annotation `podium.dev/gpu-state`; else by `--arrives`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict

from pydantic import ValidationError

from podium_agent.migration.checkpointing import Tools, leave, pod_of
from podium_agent.migration.kubelet import Container
from podium_agent.migration.refusal import MoveError
from podium_agent.migration.settings import MoveSettings
from podium_agent.observe.cgroups import Freezer, find_containers
from podium_agent.suspension.capability import read_facts, why_not_mapped
from podium_agent.suspension.cuda import CudaDriver, CudaMissingError
from podium_agent.suspension.cuda_checkpoint import CudaCheckpoint
from podium_agent.suspension.freeze import Freeze
from podium_agent.suspension.parked_memory import Arrival, Parked
from podium_agent.suspension.processes import CudaProcesses
from podium_cluster.client import ApiError, connect


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="podium_agent.migration", description="Make an image of a container that runs."
    )
    parser.add_argument("namespace")
    parser.add_argument("pod")
    parser.add_argument("container")
    parser.add_argument("target", nargs="?", help="the node that it is to go on at: judged as well")
    parser.add_argument("--undo", action="store_true", help="let a container that was stopped go on here")
    parser.add_argument(
        "--arrives", type=Arrival.model_validate_json, metavar="JSON", help="bring back one that came here; with --onto"
    )
    parser.add_argument("--onto", default="", metavar="UUID,...", help="the GPUs of this node that it is to have")
    asked = parser.parse_args(arguments)
    try:
        print(json.dumps(asyncio.run(carry_out(MoveSettings(), asked))))
    except MoveError as refused:
        print(json.dumps({"refused": refused.code, "message": refused.message}))
        sys.exit(1)
    except ValidationError as error:
        wrong = "; ".join(f"PODIUM_{'_'.join(map(str, one['loc'])).upper()}: {one['msg']}" for one in error.errors())
        sys.exit(f"podium_agent.migration: wrong settings (agent.checkpointRegistry of the chart?): {wrong}")
    except (ApiError, OSError) as error:
        sys.exit(f"podium_agent.migration: {error}")
    except (asyncio.CancelledError, KeyboardInterrupt):
        sys.exit("podium_agent.migration: interrupted; the container stands as it was found")


async def carry_out(settings: MoveSettings, asked: argparse.Namespace) -> dict[str, object]:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    container = Container(asked.namespace, asked.pod, asked.container)
    async with connect(settings) as api:
        pod = await pod_of(api, container)
        identity = frozenset({pod.container_id(container.name)} - {""})
        found = await asyncio.to_thread(find_containers, settings.proc, settings.cgroup_root, identity)
        if not found:
            message = f"{container} does not run on this node: run this in the agent of its node"
            raise MoveError("ContainerNotRunning", message)
        (freezer,) = (one.freezer for one in found.values())
        freeze, parked = Freeze(settings.freeze_timeout), Parked(settings.gpu_state_dir)
        if asked.undo:
            outcome = await freeze.resume((freezer,))
            return {"undone": outcome.ok, "code": outcome.code, "message": outcome.message}
        if asked.arrives is not None:
            onto = tuple(filter(None, asked.onto.split(",")))
            return await _bring_back(settings, parked, freezer, asked.arrives, onto)
        tools = Tools(freeze, parked, lambda: _cuda(settings))
        departed, arrival = await leave(settings, api, tools, container, freezer, pod, asked.target or "")
    said: dict[str, object] = {"image" if key == "reference" else key: one for key, one in asdict(departed).items()}
    return {**said, "arrives": arrival.model_dump()} if arrival is not None else said


async def _bring_back(
    settings: MoveSettings, parked: Parked, freezer: Freezer, arrival: Arrival, gpus: tuple[str, ...]
) -> dict[str, object]:
    """As an agent resumes a trial that is suspended."""
    if len(gpus) != len(arrival.gpus):
        raise MoveError(
            "GPUCountMismatch", f"--onto names {len(gpus)} GPUs, and it was on {len(arrival.gpus)}: name as many"
        )
    facts = await asyncio.to_thread(read_facts, settings.proc)
    too_old = None if set(gpus) == set(arrival.gpus) else why_not_mapped(facts.driver)
    if too_old is not None:
        code, _, message = too_old.partition(": ")
        raise MoveError(code, message)
    parked.arrives(freezer.path.name, arrival, gpus)
    earlier = parked.whole(freezer.path.name).onto  # of a try that some of its processes may have made
    onto = {earlier[left]: gpu for left, gpu in zip(sorted(arrival.gpus), gpus, strict=True) if left in earlier}
    cuda = await asyncio.to_thread(_cuda, settings)
    outcome = await CudaCheckpoint(cuda, Freeze(settings.freeze_timeout), parked).resume((freezer,), onto)
    if not outcome.ok:
        raise MoveError(outcome.code, outcome.message)
    return {"back": True, "seconds": outcome.seconds}


def _cuda(settings: MoveSettings) -> CudaProcesses:
    """Blocking."""
    try:
        return CudaProcesses(CudaDriver(), settings.cuda_lock_seconds, settings.cuda_copy_seconds)
    except CudaMissingError as error:
        raise MoveError("DriverMissing", f"{error}: run this where the agent finds the driver") from error


if __name__ == "__main__":
    main()
