"""A trial that the driver has moved off its GPUs (`cuda-checkpoint`) holds nothing of them, so it can be carried away.

Used by `move`. The order is that of NVIDIA's cuda-checkpoint README: toggle, CRIU's dump, CRIU's restore, toggle; no
plugin of CRIU has a part in it. On the other node the method `cuda-checkpoint` brings the trial back, by a map of GPUs
(`suspension.parked`), which drivers take from 580 on.
"""

from __future__ import annotations

from podium_agent.cgroups import Freezer
from podium_agent.moving.refusal import MoveError
from podium_agent.suspension.calls import GivenUpError
from podium_agent.suspension.cuda import ProcessState
from podium_agent.suspension.processes import CudaProcesses


async def off_gpus(processes: CudaProcesses, freezer: Freezer) -> int:
    """How many processes of a container hold CUDA; MoveError unless the driver calls all of them checkpointed.

    Not to be asked of a frozen container: the driver needs a live thread in each process.
    """
    try:
        states = await processes.of((freezer,))
    except GivenUpError as error:
        raise MoveError("DriverHung", f"the driver does not say how its processes stand: {error}") from error
    wrong = [f"process {pid} {state.name}" for pid, state in states.items() if state is not ProcessState.CHECKPOINTED]
    if wrong or not states:
        found = wrong[0] if wrong else "none of its processes one that holds CUDA"
        message = f"the driver calls {found}: only what it has checkpointed can leave; suspend it by cuda-checkpoint"
        raise MoveError("HoldsGpu", message)
    return len(states)
