"""Gradients against finite differences, softmax over groups, safe weight files, and training."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_optimisers.engine.cluster import GpuCluster
from podium_optimisers.learning.backlog import FEATURES
from podium_optimisers.learning.dqn import Dqn
from podium_optimisers.learning.environment import EpisodeDistribution
from podium_optimisers.learning.network import Adam, ScoreNetwork, WeightsError
from podium_optimisers.learning.policy_gradient import policy_gradient_errors
from podium_optimisers.learning.ppo import Ppo
from podium_optimisers.learning.reinforce import Reinforce
from podium_optimisers.learning.row_groups import RowGroups, stack_groups
from podium_optimisers.learning.train import main

SMALL = EpisodeDistribution(jobs=12, cluster=GpuCluster(1, 2))


def network(seed: int = 0, inputs: int = 3) -> ScoreNetwork:
    made = ScoreNetwork.random_init(inputs, (5, 4), np.random.default_rng(seed))
    made.layers[-1][0][:] *= 100.0
    return made


def slope(net: ScoreNetwork, loss: object, layer: int, part: int, at: int) -> float:
    """Return the central difference of `loss()` by one number of the network."""
    values, step = net.layers[layer][part].reshape(-1), 1e-6
    values[at] += step
    above = loss()  # type: ignore[operator]
    values[at] -= 2 * step
    below = loss()  # type: ignore[operator]
    values[at] += step
    return float((above - below) / (2 * step))


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000))
def test_gradients_agree_with_finite_differences(seed: int) -> None:
    generator = np.random.default_rng(seed)
    net, rows, errors = network(seed), generator.normal(size=(7, 3)), generator.normal(size=7)
    net.scores(rows)
    gradients = net.gradients(errors)
    for layer in range(3):
        for part in range(2):
            at = int(generator.integers(gradients[layer][part].size))
            expected = slope(net, lambda: float(errors @ net.scores(rows)), layer, part, at)
            assert gradients[layer][part].reshape(-1)[at] == pytest.approx(expected, rel=1e-4, abs=1e-7)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000), st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_the_policy_gradient_agrees_with_finite_differences(seed: int, sizes: list[int]) -> None:
    generator = np.random.default_rng(seed)
    net, groups = network(seed), RowGroups.of(np.array(sizes, dtype=np.int64))
    rows, weights = generator.normal(size=(sum(sizes), 3)), generator.normal(size=len(sizes))
    chosen = np.zeros(sum(sizes))
    chosen[groups.starts + generator.integers(0, groups.sizes)] = 1.0

    def loss() -> float:
        logs = groups.log_softmax(net.scores(rows))
        return float(np.mean(-weights * groups.sums(logs * chosen) + 0.3 * groups.sums(np.exp(logs) * logs)))

    gradients = net.gradients(
        policy_gradient_errors(groups.log_softmax(net.scores(rows)), groups, chosen, weights, 0.3)
    )
    for layer, part, at in ((0, 0, 2), (1, 1, 3), (2, 0, 1)):
        assert gradients[layer][part].reshape(-1)[at] == pytest.approx(
            slope(net, loss, layer, part, at), rel=1e-3, abs=1e-7
        )


def test_softmax_is_computed_within_each_group() -> None:
    rows = [np.zeros((2, 3)), np.ones((1, 3)), np.zeros((3, 3))]
    groups, stacked, chosen = stack_groups(rows, np.array([1, 0, 2]))
    assert stacked.shape == (6, 3)
    assert chosen.tolist() == [0, 1, 1, 0, 0, 1]
    chances = np.exp(groups.log_softmax(np.array([1000.0, 1000.0, -5.0, 0.0, np.log(2.0), 0.0])))
    assert chances.tolist() == pytest.approx([0.5, 0.5, 1.0, 0.25, 0.5, 0.25])


def test_adam_fits_a_simple_function() -> None:
    net = network()
    adam = Adam(net, 0.01)
    rows = np.random.default_rng(1).normal(size=(64, 3))
    wanted = np.sin(rows[:, 0]) + 0.5 * rows[:, 1]
    first = float(np.mean((net.scores(rows) - wanted) ** 2))
    for _ in range(400):
        adam.step(net.gradients((net.scores(rows) - wanted) / len(rows)))
    assert float(np.mean((net.scores(rows) - wanted) ** 2)) < 0.02 * first


def test_weights_are_saved_and_loaded_without_pickle(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    net = network()
    net.save(path)
    rows = np.random.default_rng(2).normal(size=(9, 3))
    assert ScoreNetwork.load(path, 3).scores(rows) == pytest.approx(net.scores(rows), rel=1e-5)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        assert names == ["w0.npy", "b0.npy", "w1.npy", "b1.npy", "w2.npy", "b2.npy"]
        assert all(b"|O" not in archive.read(name)[:128] for name in names)


class HarmfulObject:
    """An object whose unpickling would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return Path.touch, (self.path,)  # type: ignore[return-value]


def bad_file(path: Path, kind: str) -> None:
    weights = {"w0": np.zeros((3, 1)), "b0": np.zeros(1)}
    if kind == "no archive":
        path.write_bytes(b"weights")
    elif kind == "pickle":
        path.write_bytes(pickle.dumps(HarmfulObject(path.with_name("harmed"))))
    elif kind == "object array":
        held = np.empty(1, dtype=object)
        held[0] = HarmfulObject(path.with_name("harmed"))
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, held, allow_pickle=True)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("w0.npy", buffer.getvalue())
    elif kind == "other width":
        np.savez(path, w0=np.zeros((4, 1)), b0=np.zeros(1))
    elif kind == "two outputs":
        np.savez(path, w0=np.zeros((3, 2)), b0=np.zeros(2))
    elif kind == "missing":
        np.savez(path, w0=np.zeros((3, 1)), w1=np.zeros((3, 1)))
    elif kind == "not finite":
        np.savez(path, **(weights | {"b0": np.full(1, np.nan)}))
    elif kind == "more":
        np.savez(path, **(weights | {"extra": np.zeros(1)}))


@pytest.mark.parametrize(
    "kind",
    ["absent", "no archive", "pickle", "object array", "other width", "two outputs", "missing", "not finite", "more"],
)
def test_invalid_weight_files_are_refused_and_run_no_code(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "net.npz"
    bad_file(path, kind)
    with pytest.raises(WeightsError, match=r"InvalidWeights: net\.npz.*train again"):
        ScoreNetwork.load(path, 3)
    assert not (tmp_path / "harmed").exists()


@pytest.mark.parametrize(
    "method",
    [
        Reinforce(updates=25, workloads=2, rollouts=4, learning_rate=1e-2, hidden=(8,), distribution=SMALL),
        Ppo(updates=15, workloads=2, rollouts=4, batch_size=64, learning_rate=1e-2, hidden=(8,), distribution=SMALL),
        Dqn(
            rounds=25,
            rollouts=4,
            updates_per_round=10,
            batch_size=64,
            learning_rate=3e-3,
            validation_workloads=5,
            hidden=(8,),
            distribution=SMALL,
        ),
    ],
    ids=lambda method: method.name,
)
def test_training_is_deterministic_and_learns(method: Reinforce | Ppo | Dqn) -> None:
    from podium_optimisers.engine.simulation import simulate
    from podium_optimisers.learning.policy import LearnedPolicy

    first, again, other = (method.train(seed) for seed in (0, 0, 1))
    assert all(
        a.tobytes() == b.tobytes()
        for x, y in zip(first.layers, again.layers, strict=True)
        for a, b in zip(x, y, strict=True)
    )
    assert first.layers[0][0].tobytes() != other.layers[0][0].tobytes()
    held_out = [SMALL.sample(np.random.default_rng(1000 + seed)) for seed in range(40)]
    untrained = ScoreNetwork.random_init(FEATURES, (8,), np.random.default_rng(0))

    def mean(net: ScoreNetwork) -> float:
        return float(np.mean([simulate(w, SMALL.cluster, LearnedPolicy(net)).mean_completion for w in held_out]))

    assert mean(first) < mean(untrained)


def test_the_command_writes_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from podium_optimisers.learning import train

    monkeypatch.setitem(
        train.METHODS, "ppo", lambda: Ppo(updates=1, workloads=1, rollouts=2, hidden=(4,), distribution=SMALL)
    )
    path = tmp_path / "deep" / "ppo.npz"
    assert main(["ppo", "--seed", "3", "--out", str(path)]) == 0
    assert "bytes" in capsys.readouterr().out
    assert len(ScoreNetwork.load(path, FEATURES).layers) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed", "-1"], "InvalidSeed: --seed: -1"),
        (["--out", "/dev/null/ppo.npz"], "WeightsNotWritten: --out: /dev/null/ppo.npz"),
    ],
)
def test_the_command_refuses_invalid_options_before_training(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ppo", *options])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
