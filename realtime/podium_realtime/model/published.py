"""Published measurements: inputs of the simulator, targets of its calibration and values to validate it against.

Sources: result files of the SGPRS repository (RTX 2080 Ti class, 68 SMs; arXiv 2406.09425) and of the DARIS repository
(arXiv 2504.08795). Neither repository has a licence, so only numbers are taken from them.
"""

from __future__ import annotations

from dataclasses import dataclass

DEVICE_SMS = 68
FPS = 30.0  # rate of every task

# microseconds of one ResNet-18 inference (batch 1, 3x224x224) by number of SMs, synchronised after each frame
RESNET18_MICROSECONDS = {
    2: 23690,
    4: 12622,
    8: 7047,
    16: 4378,
    24: 3422,
    34: 2769,
    44: 2516,
    52: 2217,
    60: 2080,
    68: 2031,
}
SINGLE_STREAM_FPS = 724.0  # one network on one stream, launched without waiting for results (DARIS repository)
BEST_BATCHED_FPS = 1036.0  # one stream, best of the batch sizes 1 to 10
DARIS_FPS = 1134.0  # mean with 6 contexts of 1 stream, over-subscription 6
DARIS_MISSED = {"high": 0.0, "low": 0.0016}


@dataclass(frozen=True, slots=True)
class SgprsRow:
    """Results of one configuration in the SGPRS repository.

    `missed`: percentage of releases that missed their deadline, by number of tasks.
    """

    contexts: int
    oversubscription: float
    max_tasks_without_miss: int
    missed: dict[int, float]
    fps_at_30: float


SGPRS = (
    SgprsRow(2, 1.0, 23, {24: 14.8, 25: 27.1, 26: 45.7, 30: 68.5}, 720.0),
    SgprsRow(2, 1.5, 23, {24: 4.6, 25: 4.9, 26: 32.1, 30: 67.0}, 747.0),
    SgprsRow(2, 2.0, 23, {24: 3.7, 25: 17.3, 26: 17.9, 30: 63.7}, 740.0),
    SgprsRow(3, 1.0, 23, {24: 3.2, 25: 13.3, 26: 35.0, 30: 65.9}, 733.0),
    SgprsRow(3, 1.5, 24, {24: 0.0, 25: 0.9, 26: 19.2, 30: 57.4}, 770.0),
    SgprsRow(3, 2.0, 24, {24: 0.0, 25: 0.4, 26: 20.9, 30: 61.1}, 747.0),
)

# frames a second of networks that run back to back without a scheduler, by number of contexts and of networks
UNMANAGED = {
    1: {5: 714.0, 10: 711.0, 15: 684.0, 20: 566.0, 25: 521.0, 30: 497.0},
    5: {5: 642.0, 10: 735.0, 15: 749.0, 20: 582.0, 25: 498.0, 30: 463.0},
}
