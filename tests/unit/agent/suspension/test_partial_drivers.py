"""One GPU in trouble takes neither the method `cuda-checkpoint` nor the memory of the other GPUs away."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest
from nvml_stub import ERRORS, GIB, PER_GPU, NvmlStub

from podium_suspension.capability import DriverFacts, cuda_checkpoint_unsupported, read_facts
from podium_suspension.gpu_memory import GPUMemoryUnknownError, read_memory

LOST = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("call", [*PER_GPU, None])
def test_an_error_of_one_gpu_does_not_switch_the_method_off(
    nvml: NvmlStub, tmp_path: Path, error: int, call: str | None
) -> None:
    nvml.fail(0, error, *([call] if call else []))
    assert cuda_checkpoint_unsupported(read_facts(tmp_path)) is None


def test_mig_on_some_gpus_leaves_the_method_to_the_others(nvml: NvmlStub, tmp_path: Path) -> None:
    nvml.mig = {0}
    assert cuda_checkpoint_unsupported(read_facts(tmp_path)) is None
    nvml.mig = {0, 1}
    assert read_facts(tmp_path) == DriverFacts("610.43.02", read_facts(tmp_path).machine, ("GPU-0", "GPU-1"))
    assert (cuda_checkpoint_unsupported(read_facts(tmp_path)) or "").startswith("MIGEnabled: ")


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("call", [*PER_GPU, None])
def test_an_error_of_one_gpu_does_not_hide_the_memory_of_another(nvml: NvmlStub, error: int, call: str | None) -> None:
    nvml.processes = {1: {7: 5 * GIB}}
    nvml.fail(0, error, *([call] if call else []))
    memory = read_memory()
    assert (memory.free["GPU-1"], memory.held_by(frozenset({7}))) == (72 * GIB, {"GPU-1": 5 * GIB})
    memory.check_gpus(["GPU-1"])
    memory.check_processes([7])


@pytest.mark.parametrize("call", ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses", None])
@pytest.mark.parametrize("error", ERRORS)
def test_memory_that_is_unknown_is_not_none(nvml: NvmlStub, error: int, call: str | None) -> None:
    nvml.processes = {0: {7: 5 * GIB}}
    nvml.fail(0, error, *([call] if call else []))
    memory = read_memory()
    if error in LOST:
        assert ("GPU-0" in memory.free, memory.held_by(frozenset({7}))) == (False, {})
        memory.check_gpus(["GPU-0"])
        return
    with pytest.raises(GPUMemoryUnknownError, match="GPU-0"):
        memory.check_gpus(["GPU-0", "GPU-1"])
    with pytest.raises(GPUMemoryUnknownError):
        memory.check_processes([7])
