"""The search algorithms of other tools, as a table of what comes nearest in Podium.

`nearest` lists Podium's algorithms by preference; the first one that this version has is taken. A note says that the
algorithm is another one, unless it is the first of the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from podium_core.conversion.fields import Manifest, Report
from podium_core.schema.search.settings import KNOWN, STARTUP

SEED = "seed"


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What comes nearest to an algorithm.

    `settings`: name of Podium's setting for each setting of the tool; None where it has no counterpart. `note`: what
    else is different.
    """

    nearest: tuple[str, ...]
    settings: Mapping[str, str | None] = field(default_factory=dict)
    note: str = ""

    @property
    def chosen(self) -> str:
        """Return the first algorithm that this version of Podium has."""
        return next(name for name in self.nearest if name in KNOWN)


_SEED: Mapping[str, str | None] = {"random_state": SEED}
_TPE: Mapping[str, str | None] = {
    **_SEED,
    "n_startup_trials": STARTUP,
    **dict.fromkeys(("n_ei_candidates", "n_EI_candidates", "gamma", "prior_weight")),
}
_GP: Mapping[str, str | None] = {
    **_SEED,
    "n_initial_points": STARTUP,
    **dict.fromkeys(("base_estimator", "acq_func", "acq_optimizer")),
}

_NO_GP = (
    "tpe searches instead of a Gaussian process, so the trials differ; search.algorithm gp is one, but needs PyTorch "
    "in the operator's image"
)

KATIB: Mapping[str, Algorithm] = {
    "random": Algorithm(("random",), _SEED),
    "grid": Algorithm(("grid",), _SEED),
    "tpe": Algorithm(("tpe",), _TPE),
    "multivariate-tpe": Algorithm(("tpe",), _TPE),
    "bayesianoptimization": Algorithm(("tpe",), _GP, _NO_GP),
    "cmaes": Algorithm(("cmaes", "tpe"), {**_SEED, "sigma": None, "restart_strategy": None}),
    "sobol": Algorithm(("qmc", "random"), _SEED),
    # its resource and its rungs become a policy: `katib_search`
    "hyperband": Algorithm(("random",), dict.fromkeys(("resource_name", "r_l", "eta", "n", "b_l", "s_max"))),
    # its settings become a population: `katib_population`
    "pbt": Algorithm(
        ("pbt",),
        dict.fromkeys(("suggestion_trial_dir", "n_population", "truncation_threshold", "resample_probability")),
    ),
}
ARCHITECTURE_SEARCH = ("enas", "darts")

WANDB: Mapping[str, Algorithm] = {
    "random": Algorithm(("random",)),
    "grid": Algorithm(("grid",)),
    "bayes": Algorithm(("tpe",), {}, _NO_GP),
}


def search_of(algorithm: Algorithm, name: str, where: str, report: Report) -> Manifest:
    """Return `search` of the job without its settings, and note where it is another algorithm."""
    if algorithm.chosen != algorithm.nearest[0]:
        report.note(where, f"Podium has no {name} search: {algorithm.chosen} searches instead, so the trials differ")
    if algorithm.note:
        report.note(where, algorithm.note)
    return {"algorithm": algorithm.chosen}
