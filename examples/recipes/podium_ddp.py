"""PyTorch DDP: all ranks save and end at the same step, and each resumes with its own random number generators.

    from podium_ddp import requests, restore, save, start, trial
    start("nccl")  # torch.distributed, with patience for suspensions
    model = DistributedDataParallel(net)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    for epoch in range(restore(parts) + 1, EPOCHS + 1):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, optimizer, batches)
        trial.report(step=epoch, loss=loss)  # rank 0 alone prints
        wanted, stop = requests()
        if wanted or epoch % 5 == 0:
            save(epoch, parts)
        if stop:
            break
    torch.distributed.destroy_process_group()
    if trial.stopping():
        sys.exit(trial.STOPPED)

Start it in the container by `exec torchrun --standalone --nproc-per-node=2 train.py`. torchrun forwards SIGTERM and
kills the workers 30 s later; with a longer grace period, set `--shutdown-timeout`. A loader with a generator of its own
has to save it. DistributedSampler needs none, because its order follows from its seed and `set_epoch`. After `restore`,
set what population-based training may have changed, such as the learning rate in `optimizer.param_groups`.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

sys.path.append(os.environ.get("PODIUM_PYTHON", "/podium/python"))
from podium import trial

trial.stopping()  # handles SIGTERM from here on; `import torch` takes seconds

import torch  # noqa: E402
from torch import distributed  # noqa: E402

FILE = "state.pt"
# During a suspension the clock continues: with the usual half an hour the ranks would give each other up on resume.
PATIENCE = timedelta(days=7)


class _Ranks:
    """The group over which the ranks agree: on the CPU, beside the one of the gradients."""

    group: Any = None


def start(backend: str = "nccl", **options: Any) -> None:
    """Call `init_process_group` with a timeout that is longer than any suspension."""
    distributed.init_process_group(backend, **{"timeout": PATIENCE, **options})
    _Ranks.group = distributed.new_group(backend="gloo", timeout=options.get("timeout", PATIENCE))


def requests() -> tuple[bool, bool]:
    """Return whether to save and whether to end, with the same answers on all ranks.

    Call it on all ranks after each step. A request, or SIGTERM, may reach the ranks one step apart.
    """
    asked = torch.tensor([trial.should_save(), trial.stopping()], dtype=torch.int32)
    distributed.all_reduce(asked, distributed.ReduceOp.MAX, group=_Ranks.group)
    wanted, stop = (bool(answer) for answer in asked.tolist())
    return wanted, stop


def save(step: int, parts: Mapping[str, Any]) -> None:
    """Save the parts (objects with `state_dict`) and the generators of all ranks; call it on all ranks."""
    first = distributed.get_rank() == 0
    ranks: list[Any] | None = [None] * distributed.get_world_size() if first else None
    distributed.gather_object(_generators(), ranks, group=_Ranks.group)
    if first:
        state = {"parts": {name: part.state_dict() for name, part in parts.items()}, "ranks": ranks}
        trial.save(step, lambda folder: torch.save(state, folder / FILE))
    distributed.barrier(group=_Ranks.group)  # otherwise a rank could see the answered request once more


def restore(parts: Mapping[str, Any]) -> int:
    """Load the checkpoint into the parts and this rank's generators; return its step, or 0 without one.

    Raises ValueError if it was saved by another number of ranks.
    """
    saved = trial.load()
    if saved is None:
        return 0
    state = torch.load(saved.path / FILE, map_location="cpu", weights_only=True)
    ranks, world = state["ranks"], distributed.get_world_size()
    if len(ranks) != world:
        raise ValueError(f"{saved.path} was saved by {len(ranks)} ranks, and there are {world}: start as many")
    for name, part in parts.items():
        part.load_state_dict(state["parts"][name])
    own = ranks[distributed.get_rank()]
    torch.set_rng_state(own["torch"])
    random.setstate(own["python"])
    if own["cuda"] is not None:
        torch.cuda.set_rng_state(own["cuda"])
    return int(saved.step)


def _generators() -> dict[str, Any]:
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    return {"torch": torch.get_rng_state(), "python": random.getstate(), "cuda": cuda}
