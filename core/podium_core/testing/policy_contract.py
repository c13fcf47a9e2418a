"""Contract of ranking policies. A new policy is tested by adding its name to the registry.

The checks are plain functions that raise AssertionError, so they need no test framework.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from podium_core.curves.curve_table import empty_cache
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.base import Admission, Policy, Ranked
from podium_core.testing.builders import make_job, make_snapshot, make_trial

Case = tuple[JobView, tuple[TrialView, ...], Snapshot]
Check = Callable[[Policy, Case], None]


def _case(*curves: tuple[float, ...], maximize: bool = True) -> Case:
    job = make_job(maximize=maximize)
    trials = tuple(
        make_trial(i, values=c, gpus=["gpu-0"], phase=TrialPhase.RUNNING, gpu_seconds=float(len(c)))
        for i, c in enumerate(curves)
    )
    return job, trials, make_snapshot(jobs=[job], trials=trials)


def _search() -> Case:
    """Return twelve trials halfway: some have ended and are not ranked, some never started, the rest have trained."""
    job = make_job(max_trials=14, max_steps=16.0)
    phases = [TrialPhase.SUSPENDED, TrialPhase.RUNNING, TrialPhase.SUCCEEDED, TrialPhase.FAILED, TrialPhase.GATED]
    trials = []
    for i in range(12):
        phase = phases[i % 5]
        shown = {TrialPhase.SUCCEEDED: 16, TrialPhase.GATED: 0}.get(phase, 2 + i)
        level, speed = 0.4 + 0.37 * i % 0.5, 0.1 + 0.23 * i % 0.7
        curve = [level * (1.0 - math.exp(-speed * step)) for step in range(1, shown + 1)]
        tries = {"lr": 10.0 ** -(i % 4), "depth": i // 4}
        seconds = float(shown)
        trials.append(make_trial(i, values=curve, gpus=["gpu-0"], phase=phase, gpu_seconds=seconds, parameters=tries))
    live = tuple(t for t in trials if t.phase not in FINAL)
    return job, live, make_snapshot(jobs=[job], trials=trials)


def _race(value: Callable[[int, float], float], maximize: bool = True) -> Case:
    """Return eight trials of 24 steps; `value` gives each one's metric after a share of its training.

    Four are complete and the others have trained a third of the way or further, so that every policy judges. Trial 7,
    the best one, looks no better at first.
    """
    steps = 24
    job = make_job(maximize=maximize, max_trials=8, max_steps=float(steps))
    trials = []
    for i, shown in enumerate((steps, steps, steps, steps, 8, 12, 16, 20)):
        live_phase = TrialPhase.RUNNING if i % 2 else TrialPhase.SUSPENDED
        phase = TrialPhase.SUCCEEDED if shown == steps else live_phase
        curve = [value(i, step / steps) for step in range(1, shown + 1)]
        trials.append(make_trial(i, values=curve, gpus=["gpu-0"], phase=phase, gpu_seconds=float(shown)))
    live = tuple(t for t in trials if t.phase not in FINAL)
    return job, live, make_snapshot(jobs=[job], trials=trials)


def _plateau(number: int, part: float) -> float:
    """Flat and nearly equal curves; trial 7 rises after half of its training."""
    return 0.30 + 0.01 * (number % 3) + (max(0.0, part - 0.5) if number == 7 else 0.0)


def _warm_up(number: int, part: float) -> float:
    """A loss that rises before it falls below its start at 0.4; the faster it rises, the better it ends."""
    return 2.3 + (1.0 + 0.2 * number) * part * (0.4 - part)


def _late_crosser(number: int, part: float) -> float:
    """All curves rise at once and level off; trial 7 starts slowly and crosses them at about three quarters."""
    return part * part if number == 7 else (0.50 + 0.01 * number) * (1.0 - math.exp(-8.0 * part))


_HUGE = 1.7976931348623157e308
CASES: Mapping[str, Case] = MappingProxyType(
    {
        "none": _case(),
        "one": _case((0.1, 0.2, 0.3)),
        "empty curves": _case((), (), ()),
        "ordinary": _case((0.1, 0.5, 0.7, 0.8), (0.1, 0.2, 0.3), (0.1,), (0.2, 0.9, 0.9)),
        "search": _search(),
        "plateau": _race(_plateau),
        "warm-up": _race(_warm_up, maximize=False),
        "late crosser": _race(_late_crosser),
        "late crosser, minimised": _race(lambda number, part: -_late_crosser(number, part), maximize=False),
        "minimise": _case((2.3, 1.0, 0.5), (2.3, 2.2, 2.1), (2.3,), maximize=False),
        "alike": _case((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        "nan": _case((math.nan,), (0.1, math.nan, 0.3), (0.1, 0.2, math.nan), (0.1, 0.2, 0.3)),
        "infinite": _case((math.inf, -math.inf, math.inf), (0.1, math.inf, 0.2), (-math.inf,), (1.0, 2.0, 3.0)),
        "huge": _case((_HUGE / 2, -_HUGE / 2, 0.0), (1e308, 2e-308, -1e308), (_HUGE, -_HUGE, 0.0)),
        "huge and long": _case(
            (-_HUGE / 2, 0.0, 1e-308, 1.0, 1e300, _HUGE / 2), (-1.7e308, 1.7e308, 0.0, 1.0, 2.0, 3.0), (1e308,) * 6
        ),
    }
)


def ranks_each_once(policy: Policy, case: Case) -> None:
    job, trials, snapshot = case
    ranked = policy.rank(job, trials, snapshot)
    assert sorted(r.trial for r in ranked) == sorted(t.key for t in trials)
    assert [r.rank for r in ranked] == list(range(1, len(trials) + 1))


def explains_itself(policy: Policy, case: Case) -> None:
    for ranked in _rank(policy, case):
        assert ranked.reason.isalnum()
        assert ranked.reason[0].isupper()
        assert ranked.message.endswith(".")
        assert math.isfinite(ranked.score)


def is_deterministic(policy: Policy, case: Case) -> None:
    assert _rank(policy, case) == _rank(policy, case)


def ignores_input_order(policy: Policy, case: Case) -> None:
    job, trials, snapshot = case
    turned = replace(snapshot, trials=tuple(reversed(snapshot.trials)))
    assert policy.rank(job, tuple(reversed(trials)), turned) == _rank(policy, case)


def changes_nothing(policy: Policy, case: Case) -> None:
    before = repr(case)
    _rank(policy, case)
    assert repr(case) == before


def decides_the_same_after_a_restart(policy: Policy, case: Case) -> None:
    """Check that a process which has seen other snapshots decides as a new process does."""
    job, trials, snapshot = case
    for other in CASES.values():
        _rank(policy, other)
    for points in range(max((len(t.curve) for t in trials), default=0)):
        young = tuple(replace(t, curve=t.curve[:points]) for t in trials)
        _rank(policy, (job, young, replace(snapshot, trials=young)))
    seen = repr(_rank(policy, case))
    with empty_cache():
        assert seen == repr(_rank(replace_policy(policy), case))


def ranks_a_part_in_the_same_order(policy: Policy, case: Case) -> None:
    """Check that trials of one GPU, ranked alone, keep the order that they have among all trials.

    So one ranking of the whole job serves every run queue.
    """
    job, trials, snapshot = case
    part = trials[::2]
    whole = [r.trial for r in policy.rank(job, trials, snapshot)]
    alone = [r.trial for r in policy.rank(job, part, snapshot)]
    assert alone == [key for key in whole if key in {t.key for t in part}]


def ignores_other_jobs(policy: Policy, case: Case) -> None:
    job, trials, snapshot = case
    other_trial = make_trial(0, job="other", values=(1e6, 2e6, 3e6), gpus=["gpu-0"])
    crowded = replace(snapshot, trials=(*snapshot.trials, other_trial))
    assert policy.rank(job, trials, crowded) == _rank(policy, case)


def keeps_switches_rare(policy: Policy, case: Case) -> None:
    """Check that switches never take more than a tenth of a time slice."""
    for costs in (Costs(0.0, 0.0), Costs(0.2, 0.2), Costs(30.0, 30.0)):
        assert policy.time_slice(costs) >= 10.0 * (costs.suspend + costs.resume)
    assert policy.hysteresis >= 0.0


def gives_up_only_if_it_cuts(policy: Policy, case: Case) -> None:
    assert policy.cuts or all(ranked.admission is Admission.GO for ranked in _rank(policy, case))


CHECKS: tuple[Check, ...] = (
    ranks_each_once,
    explains_itself,
    is_deterministic,
    ignores_input_order,
    changes_nothing,
    decides_the_same_after_a_restart,
    ranks_a_part_in_the_same_order,
    ignores_other_jobs,
    keeps_switches_rare,
    gives_up_only_if_it_cuts,
)


def replace_policy(policy: Policy) -> Policy:
    """Return a new policy with the same settings (policies are frozen dataclasses)."""
    copy: Policy = replace(policy)  # type: ignore[type-var]
    return copy


def _rank(policy: Policy, case: Case) -> tuple[Ranked, ...]:
    return tuple(policy.rank(*case))
