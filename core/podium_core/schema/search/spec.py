"""Search space of a job, and how it is searched: parameters, conditions, search algorithm and warm start."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from podium_core.domain.snapshot import Scalar
from podium_core.schema.base import SpecModel

MAX_OBJECTIVES = 4
MAX_RESULTS = 100  # of other searches that a job lists


class ParameterType(StrEnum):
    """Type of a parameter."""

    FLOAT = "float"
    INT = "int"
    CATEGORICAL = "categorical"
    BOOLEAN = "boolean"


class When(SpecModel):
    """Condition of a parameter: it is active only with certain values of another parameter."""

    parameter: str = Field(
        min_length=1,
        max_length=63,
        description="Name of the parameter on which this one depends: categorical, boolean or of type int.",
    )
    values: list[Scalar] = Field(
        alias="in",
        min_length=1,
        max_length=64,
        description="Values of that parameter with which this one is active.",
    )


class Parameter(SpecModel):
    """One dimension of the search space: a range (min, max) or a list of values."""

    name: str = Field(
        min_length=1,
        max_length=63,
        pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$",
        description="Name of the parameter. The trial gets its value as `--name=...` in `$(podium.args)`, as "
        "`$(podium.params.name)` and in the environment variable `PODIUM_PARAM_NAME`.",
        json_schema_extra={"x-says": "start with a letter or _, then use letters, digits, _, . and -, such as lr"},
    )
    type: ParameterType | None = Field(
        None, description="Type of the parameter. Default: float, or categorical if values are given."
    )
    min: float | None = Field(None, description="Lower end of the range, included.")
    max: float | None = Field(None, description="Upper end of the range, included.")
    step: float | None = Field(
        None,
        gt=0,
        description="Distance between the points of the range, counted from min. On a log scale it is at most min.",
    )
    scale: Literal["linear", "log"] = Field(
        "linear", description="Scale of the range. log: each power of ten is equally likely."
    )
    values: list[Scalar] | None = Field(
        None, min_length=1, max_length=256, description="Choices instead of a range: strings, numbers or booleans."
    )
    when: When | None = Field(
        None,
        description="Condition under which the parameter is active. A trial has no value of an inactive parameter. "
        "Default: it is always active.",
    )

    @property
    def kind(self) -> ParameterType:
        """Return the type to choose from: with `values` the parameter is always categorical."""
        if self.values is not None:
            return ParameterType.CATEGORICAL
        return self.type if self.type is not None else ParameterType.FLOAT


class EarlierResult(SpecModel):
    """One trial of an earlier search, from a file or another tool."""

    parameters: dict[str, Scalar] = Field(min_length=1, max_length=64, description="Parameters of the trial.")
    value: float = Field(
        description="Best value of the objective; of several, of the first in objectives.",
        json_schema_extra={"x-says": "give the best value that the trial reported"},
    )
    values: list[float] = Field(
        default_factory=list,
        max_length=MAX_OBJECTIVES,
        description="Value of each of several objectives, in their order.",
    )
    step: float = Field(0.0, ge=0, description="Step of the trial's last value.")
    completed: bool = Field(True, description="Whether the trial was trained to its end.")


class WarmStartSpec(SpecModel):
    """Earlier searches whose results the search learns from: jobs, results that are listed here, or both."""

    jobs: list[Annotated[str, Field(min_length=1, max_length=253)]] = Field(
        default_factory=list,
        max_length=8,
        description="Names of jobs in the same namespace. The search starts once they have ended. Their trials count "
        "whose parameters lie in this search space.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    results: list[EarlierResult] = Field(
        default_factory=list,
        max_length=MAX_RESULTS,
        description="Results of other searches, the latest last. `podium warm-start` writes them from files.",
    )


class SearchSpec(SpecModel):
    """How the parameters of the trials are proposed."""

    algorithm: Literal["auto", "cmaes", "gp", "grid", "pbt", "qmc", "random", "tpe"] = Field(
        "random",
        description="Algorithm that proposes the parameters of the next trial. auto, cmaes, gp and tpe learn from the "
        "results of earlier trials, so they create each trial as late as possible. pbt replaces the worst trials by "
        "children of the best ones, which continue from their checkpoints.",
    )
    seed: int = Field(
        0,
        ge=0,
        le=2**32 - 1,
        description="Seed of the random numbers. The same seed proposes the same parameters; with an algorithm that "
        "learns, if the trials also report the same values at the same times.",
    )
    settings: dict[str, Scalar] = Field(
        default_factory=dict,
        description="Settings of the algorithm. auto, cmaes, gp and tpe: startupTrials, the number of trials that must "
        "have reported a value before the algorithm chooses by values (default 10). pbt: interval, the steps between "
        "two comparisons (required); population, the number of trials that start from the beginning (default 8); "
        "quantile, the part of them that is replaced (default 0.25); perturbation (default 0.2: numbers are multiplied "
        "by 0.8 or 1.2); resampleProbability, with which a parameter is drawn at random instead (default 0.25); "
        "fixed, names of parameters that never change in a child, separated by commas. The others have no settings.",
    )
    initial_trials: list[Annotated[dict[str, Scalar], Field(min_length=1, max_length=64)]] = Field(
        default_factory=list,
        max_length=100,
        description="Points that are tried first, in this order: values by parameter name. The values of parameters "
        "that an entry leaves out are drawn at random.",
    )
    warm_start: WarmStartSpec | None = Field(
        None, description="Earlier searches whose results an algorithm that learns uses from the beginning."
    )
