"""Answers of the driver's library about one GPU: what it knows, and what its errors mean.

A driver may answer only in part: each call may fail while all others work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pynvml

T = TypeVar("T")

# errors that only say that the GPU or the driver does not report the value
NOT_REPORTED = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NO_DATA,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)


class Answers:
    """Answers about one GPU, and the trouble with them.

    `lost` and `reset_required` are states of the GPU. `error`: NVML's words about the first call that failed otherwise.
    `refusal`: NVML's words about the last call that failed, whatever the reason.
    """

    def __init__(self) -> None:
        self.lost = False
        self.reset_required = False
        self.error = ""
        self.refusal = ""

    def ask(self, question: Callable[[], T]) -> T | None:
        """Return the answer; None if there is none, and the reason is noted."""
        try:
            return question()
        except pynvml.NVMLError as error:
            self.refusal = str(error)
            if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
                self.lost = True
            elif error.value == pynvml.NVML_ERROR_RESET_REQUIRED:
                self.reset_required = True
            elif error.value not in NOT_REPORTED:
                self.error = self.error or str(error)
            return None


def text(value: Any) -> str:
    """Return a name of the library, which may be bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def utilization(handle: Any) -> float:
    """Return the utilization in percent; drivers are known to report more than 100."""
    return min(100.0, max(0.0, float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)))


def uncorrected_errors(handle: Any) -> int:
    """Return the uncorrected memory errors since the driver was loaded."""
    kind, counter = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    return int(pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter))


def recovery_action(handle: Any) -> int:
    """Return the recovery action that the driver asks for; 0 for none (driver 565 and newer)."""
    (answer,) = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    if answer.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(answer.nvmlReturn)
    return int(answer.value.uiVal)
