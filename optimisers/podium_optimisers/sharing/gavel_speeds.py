"""How fast 26 training jobs ran on three GPUs, as measured by the authors of Gavel. Called by `instances`.

Source: Narayanan, Santhanam, Kazhamiaka, Phanishayee, Zaharia (OSDI 2020), their repository stanford-futuredata/gavel
(MIT), file scheduler/simulation_throughputs.json, one GPU, nobody beside; figures only, rounded. The recommendation
model is slowest on a V100: it is there as it was measured.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """Steps per second on a P100 and on a K80 over those on a V100; `distributed`: runs on several GPUs in Gavel."""

    model: str
    batch: int | None
    p100: float
    k80: float
    distributed: bool = True


SPEEDS = (
    Measured("ResNet-18", 16, 1.109, 0.148),
    Measured("ResNet-18", 32, 1.196, 0.240),
    Measured("ResNet-18", 64, 0.926, 0.293),
    Measured("ResNet-18", 128, 0.649, 0.100),
    Measured("ResNet-18", 256, 0.750, 0.086),
    Measured("ResNet-50", 16, 0.794, 0.202),
    Measured("ResNet-50", 32, 0.628, 0.159),
    Measured("ResNet-50", 64, 0.596, 0.141),
    Measured("ResNet-50", 128, 0.635, 0.139),
    Measured("Transformer", 16, 0.862, 0.494),
    Measured("Transformer", 32, 0.741, 0.330),
    Measured("Transformer", 64, 0.591, 0.203),
    Measured("Transformer", 128, 0.564, 0.180),
    Measured("Transformer", 256, 1.052, 0.287),
    Measured("LSTM", 5, 0.832, 0.233),
    Measured("LSTM", 10, 0.944, 0.291),
    Measured("LSTM", 20, 0.899, 0.265),
    Measured("LSTM", 40, 0.791, 0.254),
    Measured("LSTM", 80, 0.749, 0.214),
    Measured("Recommendation", 512, 2.096, 1.409, False),
    Measured("Recommendation", 1024, 2.315, 1.509, False),
    Measured("Recommendation", 2048, 2.222, 1.398, False),
    Measured("Recommendation", 4096, 2.278, 1.357, False),
    Measured("Recommendation", 8192, 1.953, 0.950, False),
    Measured("A3C", None, 0.792, 0.479, False),
    Measured("CycleGAN", None, 0.543, 0.114, False),
)
