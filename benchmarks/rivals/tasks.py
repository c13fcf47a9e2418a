"""The tasks of bench-rivals: a training script, its search space as a HyperParamJob, and how long a step takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the comparison; `about` is a line for the page.

    `work`: the scripts' `--work`, to which the time of an epoch is proportional.
    """

    script: Path
    job: Path
    work: int
    about: str


TASKS = {
    "digits": Task(
        ROOT / "examples" / "digits" / "train.py",
        ROOT / "examples" / "digits" / "job.yaml",
        40,
        "a network on scikit-learn's digits, 4 parameters, 40 epochs",
    ),
    "boosting": Task(
        ROOT / "benchmarks" / "rivals" / "boosting.py",
        ROOT / "benchmarks" / "rivals" / "boosting.yaml",
        1,
        "gradient-boosted trees on a synthetic task, 6 parameters, 40 rounds",
    ),
}
