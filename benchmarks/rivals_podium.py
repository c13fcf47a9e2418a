"""A contender of `make bench-rivals`: Podium's searcher and planner on this machine's processes (local_runner).

Run in Podium's own environment: `python rivals_podium.py SETUP.json`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from local_runner import LocalRunner, Trial
from rivals_trial import Setup, Training

from podium_core.curves.best_value import best_point
from podium_core.domain.snapshot import Scalar
from podium_core.planning.job_view import job_view
from podium_core.schema.job import HyperParamJob
from podium_core.schema.manifests import read_manifests
from podium_operator.searchers.base import TrialResult
from podium_operator.searchers.registry import SEARCHERS


def main(path: str) -> None:
    setup = Setup.read(path)
    job = HyperParamJob.model_validate(read_manifests([Path(setup.job)])[0])
    search = {"seed": setup.seed, "algorithm": setup.search}
    spec = job.spec.model_copy(update={"search": job.spec.search.model_copy(update=search)})
    searcher = SEARCHERS[setup.search]
    view = replace(
        job_view(job.model_copy(update={"spec": spec}), points=None, accepted=True, finished=False, suspendable=True),
        policy=setup.policy,
        settings={},
        max_trials=setup.trials,
        parallel=None,
        max_steps=float(setup.epochs),
        memory=None,
    )

    def propose(number: int) -> Mapping[str, Scalar]:
        found = searcher.propose(spec, number, [tried(trial) for trial in runner.trials.values()])
        assert found is not None, "this search has no end"
        return found

    def launch(name: str, parameters: Mapping[str, Scalar]) -> Training:
        return Training(setup, name, parameters)

    shares = -(-setup.trials // setup.cores)  # all trials may be open at once, as Ray and Optuna keep none back
    runner = LocalRunner(view, setup.cores, shares, propose, launch)
    ended = runner.run()
    if not ended.succeeded:
        sys.exit(ended.message)


def tried(trial: Trial) -> TrialResult:
    """As the operator tells its searchers (`podium_operator.act.actuator`)."""
    step = trial.points[-1].step if trial.points else None
    return TrialResult.at(trial.phase, trial.number, trial.parameters, step, best_point(trial.points, maximize=True))


if __name__ == "__main__":
    main(sys.argv[1])
