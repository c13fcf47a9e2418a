"""The planner, the extender and the device plugin answer alike whether a trial fits on a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from podium_agent.deviceplugin.slots import device_id, pack
from podium_core.domain.fitting import fits, fits_now
from podium_core.domain.gpu_view import GpuMemory, GpuView
from podium_core.domain.keys import JobKey
from podium_core.domain.snapshot import Abilities, GpuNeeds, JobLimits, JobState, JobView
from podium_core.placement.fit import refuse_with_freshness, usable
from podium_core.placement.views import GpuReading, NodeView, PodNeed
from podium_core.testing.builders import change_reading, make_reading

PRODUCTS = st.sampled_from(["", "H100", "A100"])
SIZES = st.integers(0, 5)
HEALTH: st.SearchStrategy[Literal["Healthy", "Unhealthy", "Unknown"]] = st.sampled_from(
    ["Healthy", "Unhealthy", "Unknown"]
)
READINGS = st.builds(
    make_reading,
    uuid=st.just("GPU-a"),
    product=PRODUCTS,
    memory_total=SIZES,
    memory_reserved=SIZES,
    health=HEALTH,
)


@given(READINGS, st.none() | SIZES, st.lists(PRODUCTS.filter(bool), max_size=2), st.booleans())
def test_all_agree(gpu: GpuReading, memory: int | None, products: list[str], moves: bool) -> None:
    gpu = change_reading(gpu, memory_movable=gpu.memory.reserved // 2)
    need = PodNeed(1, memory, tuple(products), memory_stays=not moves, packed=memory is not None)
    job = JobView(
        key=JobKey("demo", "job"), uid="u", created=0.0, policy="p", settings={}, maximize=True, target=None,
        max_steps=None, limits=JobLimits(1, None, 0, 0), gpus=GpuNeeds(1, tuple(products), memory),
        abilities=Abilities(moves_memory=moves), state=JobState(accepted=True, suspended=False),
    )  # fmt: skip
    view = GpuView(
        "node", gpu.uuid, gpu.health, 4, 4, gpu.product,
        memory=GpuMemory(gpu.memory_total, gpu.memory.reserved, gpu.memory.movable),
    )  # fmt: skip
    node = NodeView("node", (gpu,), reported_at=0.0)
    refusal = refuse_with_freshness(need, node, fresh=True)
    assert bool(usable(need, node, fresh=True)) == (refusal is None)
    assert fits_now(job, view) == (refusal is None)
    assert fits(job, view) == (refusal is None or refusal.code == "GPUMemoryReserved")
    if need.packed:
        assert bool(pack([device_id(gpu.uuid, 0)], 1, [replace(gpu, trials=3)], need)) == (refusal is None)
