"""LightGBM: `train` is `lightgbm.train` that saves on Podium's request, ends after SIGTERM, and resumes.

    from podium_lightgbm import train, trial
    model = train(params, data, ROUNDS, valid_sets=[valid], valid_names=["valid"], every=50)
    if trial.stopping():
        sys.exit(trial.STOPPED)

A step is a round. Each metric is reported as valid_l2: the name of the data, then that of the metric. `every` is the
number of rounds between two checkpoints. LightGBM does not save its random number generators, so each round gets a seed
of its own, from `seed` and its number. A resumed training then samples the rows and columns that it would have sampled.
Set `deterministic: true`, `force_row_wise: true` and `num_threads`, as LightGBM asks for equal results. With `dart`,
`goss` or quantized gradients a resumed training is as good, but not the same.

Leave early stopping to Podium, because LightGBM's own counts from the start again, and so does its schedule of learning
rates. The number of rounds is an argument of `train`; `params` must not have one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import lightgbm
from lightgbm.basic import _ConfigAliases
from lightgbm.callback import CallbackEnv, EarlyStopException

sys.path.append(os.environ.get("PODIUM_PYTHON", "/podium/python"))
from podium import trial

FILE = "model.txt"
FRACTIONS = ("bagging_fraction", "pos_bagging_fraction", "neg_bagging_fraction")
SEEDS = ("bagging_seed", "feature_fraction_seed", "extra_seed")

trial.stopping()  # handles SIGTERM from here on


def train(
    params: Mapping[str, Any],
    train_set: lightgbm.Dataset,
    num_boost_round: int,
    *,
    every: int = 10,
    callbacks: Sequence[Callable[[CallbackEnv], None]] = (),
    **options: Any,
) -> lightgbm.Booster:
    """Call `lightgbm.train` for the rounds after the checkpoint; return the model of all rounds.

    Raises ValueError for parameters with which LightGBM cannot resume.
    """
    _refuse(params)
    saved = trial.load()
    done, model = (int(saved.step), str(saved.path / FILE)) if saved else (0, None)
    if done >= num_boost_round:
        return lightgbm.Booster(model_file=model)
    return lightgbm.train(
        dict(params),
        train_set,
        num_boost_round - done,
        init_model=model,
        callbacks=[Reseeding(params), PodiumCallback(params, done, every), *callbacks],
        **options,
    )


class Reseeding:
    """Seeds the generators with the number of each round."""

    order = 0
    before_iteration = True

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.seed = int(_given(params, "seed", 0))
        self.fractions = {name: float(_given(params, name, 1.0)) for name in FRACTIONS}
        self.period = _period(params)

    def __call__(self, env: CallbackEnv) -> None:
        first = (self.seed * 10_007 + env.iteration) * len(SEEDS)
        values: dict[str, Any] = {name: (first + number) % 2**31 for number, name in enumerate(SEEDS)}
        if env.iteration % self.period == 0:
            # LightGBM seeds the sampling of rows only if a fraction changes, in the first round from that of `params`
            tiny = 1.0 + 1e-9 * (1 + env.iteration // self.period % 2)
            values |= {name: fraction * tiny for name, fraction in self.fractions.items() if fraction < 1.0}
        env.model.reset_parameter(values)


class PodiumCallback:
    """Connects `lightgbm.train` to `podium.trial`; `every`: number of rounds between two checkpoints."""

    order = 0
    before_iteration = False

    def __init__(self, params: Mapping[str, Any], done: int = 0, every: int = 10) -> None:
        self.every = every
        self.period = _period(params)
        self._saved = done

    def __call__(self, env: CallbackEnv) -> None:
        done = env.iteration + 1
        results = env.evaluation_result_list or ()
        trial.report(step=done, **{f"{data}_{metric}": value for data, metric, value, *_ in results})
        if done % self.period:
            return  # the rows are drawn again after `bagging_freq` rounds; a training can resume only there
        if trial.should_save() or done - self._saved >= self.every:
            trial.save(done, lambda folder: env.model.save_model(folder / FILE, num_iteration=-1))
            self._saved = done
        if trial.stopping():
            raise EarlyStopException(env.iteration, results)


def _given(params: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return the parameter under its name or one of LightGBM's other names for it."""
    return next((params[alias] for alias in (name, *_ConfigAliases.get(name)) if alias in params), default)


def _period(params: Mapping[str, Any]) -> int:
    return max(int(_given(params, "bagging_freq", 0)), 1)


def _refuse(params: Mapping[str, Any]) -> None:
    if _given(params, "boosting", "gbdt") in ("rf", "random_forest"):
        raise ValueError(
            "boosting: rf cannot resume, because LightGBM adds no tree to a saved forest; use gbdt or dart"
        )
    rounds = _given(params, "num_iterations", None)
    if rounds is not None:
        raise ValueError(f"num_iterations is in params (got {rounds}); pass it to train as num_boost_round")
