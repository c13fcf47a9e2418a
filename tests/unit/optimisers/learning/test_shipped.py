"""The weights in the package: small, arrays alone, and better than FIFO on workloads that no training saw."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from podium_optimisers.engine.simulation import simulate
from podium_optimisers.learning.backlog import FEATURES
from podium_optimisers.learning.environment import Episodes
from podium_optimisers.learning.network import Network
from podium_optimisers.learning.policy import TRAINED, LearnedPolicy
from podium_optimisers.learning.train import METHODS
from podium_optimisers.preemptive.policies import Fifo

HELD_OUT = range(50_000, 50_012)  # training draws from one generator; no seed of it is among these


def test_every_method_ships_its_weights_and_nothing_else_is_shipped() -> None:
    assert {file.name for file in TRAINED.iterdir()} == {f"{name}.npz" for name in METHODS}


@pytest.mark.parametrize("name", METHODS)
def test_they_are_a_few_kilobytes_of_arrays(name: str) -> None:
    path = TRAINED / f"{name}.npz"
    assert path.stat().st_size < 16_384
    with zipfile.ZipFile(path) as archive:
        assert all(member.endswith(".npy") for member in archive.namelist())
    shapes = [weights.shape for weights, _ in Network.load(path, FEATURES).layers]  # load forbids pickles
    assert shapes == [(FEATURES, 32), (32, 32), (32, 1)]


@pytest.mark.parametrize("name", METHODS)
def test_they_beat_fifo_on_held_out_seeds(name: str) -> None:
    episodes = Episodes()
    policy = LearnedPolicy.load(TRAINED / f"{name}.npz")
    gaps = []
    for seed in HELD_OUT:
        workload = episodes.draw(np.random.default_rng(seed))
        learned, fifo = (simulate(workload, episodes.cluster, one).mean_completion for one in (policy, Fifo()))
        gaps.append(learned - fifo)
    half = 2.201 * float(np.std(gaps, ddof=1)) / len(gaps) ** 0.5  # Student's t, 11 degrees of freedom, 95 %
    assert float(np.mean(gaps)) + half < 0.0
