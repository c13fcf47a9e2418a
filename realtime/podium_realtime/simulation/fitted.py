"""The numbers of the interference model, as `calibration.fit` finds them from part of the published cells.

`benchmarks/bench_realtime.py` finds them anew and prints both; tests hold these to their cells.
"""

from __future__ import annotations

from podium_realtime.simulation.gpu import Interference
from podium_realtime.simulation.scenarios import Machine

FITTED = Machine(Interference(kappa=0.0991, serial=0.9614, threads=13.42, convoy=0.0344), patience=0.193)
