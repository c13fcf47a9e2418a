"""Command line of live migration (experimental): `python -m podium_agent.migration NAMESPACE POD CONTAINER [TARGET]`.

Run it in the agent of the container's node. It makes an image of the container and prints one line of JSON:
`{"image": ..., ...}` or `{"refused": CODE, "message": ...}`. The container remains frozen. A copy of its pod that runs
this image continues from there; once it runs, delete the old pod. `--undo` resumes the old container instead. SIGTERM
and SIGINT undo unfinished work.

If the driver had moved the container's memory off its GPUs, the output includes `"gpuState": {...}`. The new container
then waits until its GPU memory is restored. The agent does that for a trial's pod with this value as its annotation
`podium.dev/gpu-state`; for any other pod, run the command with `--gpu-state`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict

from pydantic import ValidationError

from podium_agent.driver.libraries import DriverLibraries, LibrariesMissingError
from podium_agent.migration.container_checkpoint import MigrationSource, MigrationTools, checkpoint_container, get_pod
from podium_agent.migration.errors import MigrationError
from podium_agent.migration.kubelet import ContainerRef
from podium_agent.migration.settings import MigrationSettings
from podium_agent.observe.cgroups import Freezer, find_containers
from podium_cluster.client import ApiError, connect
from podium_suspension.capability import DriverFacts, gpu_map_unsupported, read_facts
from podium_suspension.cuda import CudaDriver, CudaMissingError
from podium_suspension.cuda_checkpoint import CudaCheckpoint
from podium_suspension.freeze import Freeze
from podium_suspension.gpu_state_notes import GpuState, GpuStateNotes
from podium_suspension.processes import CudaProcesses


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="podium_agent.migration", description="Make an image of a running container.")
    parser.add_argument("namespace")
    parser.add_argument("pod")
    parser.add_argument("container")
    parser.add_argument("target", nargs="?", help="the new node, whose compatibility is checked")
    parser.add_argument("--undo", action="store_true", help="resume a stopped container on this node")
    parser.add_argument(
        "--gpu-state",
        type=GpuState.model_validate_json,
        metavar="JSON",
        help="restore the GPU memory of a migrated container; needs --onto",
    )
    parser.add_argument("--onto", default="", metavar="UUID,...", help="the GPUs of this node to restore onto")
    options = parser.parse_args(arguments)
    try:
        print(json.dumps(asyncio.run(run(MigrationSettings(), options))))
    except MigrationError as refused:
        print(json.dumps({"refused": refused.code, "message": refused.message}))
        sys.exit(1)
    except ValidationError as error:
        wrong = "; ".join(f"PODIUM_{'_'.join(map(str, one['loc'])).upper()}: {one['msg']}" for one in error.errors())
        sys.exit(f"podium_agent.migration: invalid settings (see agent.checkpointRegistry of the chart): {wrong}")
    except (ApiError, OSError) as error:
        sys.exit(f"podium_agent.migration: {error}")
    except (asyncio.CancelledError, KeyboardInterrupt):
        sys.exit("podium_agent.migration: interrupted; the container is in its original state")


async def run(settings: MigrationSettings, options: argparse.Namespace) -> dict[str, object]:
    """Run one command and return its output. Raises MigrationError, ApiError and OSError."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    container = ContainerRef(options.namespace, options.pod, options.container)
    async with connect(settings) as api:
        pod = await get_pod(api, container)
        identity = frozenset({pod.container_id(container.name)} - {""})
        containers = await asyncio.to_thread(find_containers, settings.proc, settings.cgroup_root, identity)
        if not containers:
            message = f"{container} does not run on this node; run this command in the agent of its node"
            raise MigrationError("ContainerNotRunning", message)
        (freezer,) = (one.freezer for one in containers.values())
        freeze, notes = Freeze(settings.freeze_timeout), GpuStateNotes(settings.gpu_state_dir)
        if options.undo:
            outcome = await freeze.resume((freezer,))
            return {"undone": outcome.ok, "code": outcome.code, "message": outcome.message}
        if options.gpu_state is not None:
            gpus = tuple(filter(None, options.onto.split(",")))
            return await _restore(settings, notes, freezer, options.gpu_state, gpus)
        tools = MigrationTools(freeze, notes, lambda: _cuda(settings))
        source = MigrationSource(container, freezer, pod)
        image, gpu_state = await checkpoint_container(settings, api, tools, source, options.target or "")
    output: dict[str, object] = {"image" if key == "reference" else key: one for key, one in asdict(image).items()}
    return {**output, "gpuState": gpu_state.model_dump()} if gpu_state is not None else output


async def _restore(
    settings: MigrationSettings, notes: GpuStateNotes, freezer: Freezer, gpu_state: GpuState, gpus: tuple[str, ...]
) -> dict[str, object]:
    """Restore the GPU memory of a migrated container, as an agent does when it resumes a trial."""
    if len(gpus) != len(gpu_state.gpus):
        raise MigrationError(
            "GPUCountMismatch",
            f"--onto names {len(gpus)} GPUs, but the container used {len(gpu_state.gpus)}; name as many",
        )
    facts = await asyncio.to_thread(_facts, settings)
    too_old = None if set(gpus) == set(gpu_state.gpus) else gpu_map_unsupported(facts.driver)
    if too_old is not None:
        code, _, message = too_old.partition(": ")
        raise MigrationError(code, message)
    notes.add_migrated(freezer.name, gpu_state, gpus)
    earlier = notes.read(freezer.name).gpu_map  # of an earlier attempt that may have restored some processes
    gpu_map = {earlier[old]: gpu for old, gpu in zip(sorted(gpu_state.gpus), gpus, strict=True) if old in earlier}
    cuda = await asyncio.to_thread(_cuda, settings)
    outcome = await CudaCheckpoint(cuda, Freeze(settings.freeze_timeout), notes).resume((freezer,), gpu_map)
    if not outcome.ok:
        raise MigrationError(outcome.code, outcome.message)
    return {"back": True, "seconds": outcome.seconds}


def _facts(settings: MigrationSettings) -> DriverFacts:
    """Read the driver and machine of this node; blocking. Without libraries, the facts say so."""
    with suppress(LibrariesMissingError):
        DriverLibraries(settings.driver_files).prepare()
    return read_facts(settings.proc)


def _cuda(settings: MigrationSettings) -> CudaProcesses:
    """Open the driver; blocking."""
    try:
        DriverLibraries(settings.driver_files).prepare()
        return CudaProcesses(CudaDriver(), settings.cuda_lock_seconds, settings.cuda_copy_seconds)
    except (CudaMissingError, LibrariesMissingError) as error:
        raise MigrationError(
            "DriverMissing", f"{error}; run this command in an agent that has access to the driver"
        ) from error


if __name__ == "__main__":
    main()
