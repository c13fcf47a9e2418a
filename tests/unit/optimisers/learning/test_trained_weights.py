"""The weights in the package: small, arrays only, better than backfilled FIFO on held-out workloads."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from podium_optimisers.arrays import Floats
from podium_optimisers.engine.simulation import SchedulingPolicy, simulate
from podium_optimisers.engine.workload import Workload
from podium_optimisers.learning.backlog import FEATURES
from podium_optimisers.learning.environment import EpisodeDistribution
from podium_optimisers.learning.network import ScoreNetwork
from podium_optimisers.learning.policy import TRAINED_WEIGHTS, LearnedPolicy
from podium_optimisers.learning.ppo import Ppo
from podium_optimisers.learning.train import METHODS
from podium_optimisers.preemptive.policies import FifoPolicy

HELD_OUT = range(50_000, 50_060)  # training uses one generator with none of these seeds
STUDENT_95 = 2.001  # two-sided, 59 degrees of freedom


def test_the_package_contains_the_weights_of_every_method_and_nothing_else() -> None:
    assert {file.name for file in TRAINED_WEIGHTS.iterdir()} == {f"{name}.npz" for name in METHODS}


@pytest.mark.parametrize("name", METHODS)
def test_trained_weights_are_a_few_kilobytes_of_arrays(name: str) -> None:
    path = TRAINED_WEIGHTS / f"{name}.npz"
    assert path.stat().st_size < 16_384
    with zipfile.ZipFile(path) as archive:
        assert all(member.endswith(".npy") for member in archive.namelist())
    shapes = [weights.shape for weights, _ in ScoreNetwork.load(path, FEATURES).layers]  # load forbids pickles
    assert shapes == [(FEATURES, 32), (32, 32), (32, 1)]


@pytest.fixture(scope="module")
def held_out() -> list[Workload]:
    return [EpisodeDistribution().sample(np.random.default_rng(seed)) for seed in HELD_OUT]


def completions(workloads: list[Workload], policy: SchedulingPolicy) -> Floats:
    return np.array(
        [simulate(workload, EpisodeDistribution().cluster, policy).mean_completion for workload in workloads]
    )


@pytest.fixture(scope="module")
def backfilled(held_out: list[Workload]) -> Floats:
    """Return the mean completion of FIFO with backfilling; even random choices beat strict FIFO."""
    return completions(held_out, FifoPolicy(backfill=True))


def beats(policy: Floats, rival: Floats) -> bool:
    """Return whether the paired difference is below 0 with its 95 % interval."""
    gaps = policy - rival
    return float(np.mean(gaps)) + STUDENT_95 * float(np.std(gaps, ddof=1)) / len(gaps) ** 0.5 < 0.0


@pytest.mark.parametrize("name", METHODS)
def test_trained_weights_beat_backfilled_fifo_on_held_out_seeds(
    name: str, held_out: list[Workload], backfilled: Floats
) -> None:
    assert beats(completions(held_out, LearnedPolicy.load(TRAINED_WEIGHTS / f"{name}.npz")), backfilled)


def test_the_untrained_network_does_not_beat_backfilled_fifo(held_out: list[Workload], backfilled: Floats) -> None:
    """All methods start from this network. Not every random network fails: seed 2 prefers short jobs by chance."""
    untrained = ScoreNetwork.random_init(FEATURES, Ppo().hidden, np.random.default_rng(0))
    assert not beats(completions(held_out, LearnedPolicy(untrained)), backfilled)
