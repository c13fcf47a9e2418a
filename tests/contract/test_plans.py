"""Whole plans of every policy in a simulated search: sound and work-conserving in every cycle, and the same after a
restart at any instant.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from policy_searches import TRIALS, alone, search
from policy_variants import VARIANTS, Settings

from podium_core.curves.curve_table import empty_cache
from podium_core.domain.actions import Plan
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Snapshot
from podium_core.planning.invariants import violations
from podium_core.planning.planner import plan
from podium_core.policies.registry import create
from podium_core.testing.builders import make_gpu, make_job, make_snapshot, make_trial
from podium_simulator.system import operator
from podium_simulator.system.engine import simulate
from podium_simulator.system.scenario import Faults

ENDLESS = [(name, settings) for name, settings in VARIANTS if not create(name, settings).cuts]


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_plans_are_sound_in_every_cycle_and_the_same_after_a_restart(
    name: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine trials on six places, with accidents, compared in each cycle: the planner remembers the whole run, or
    nothing.
    """
    cycles = 0

    def both(snapshot: Snapshot) -> Plan:
        nonlocal cycles
        cycles += 1
        warm = plan(snapshot)
        with empty_cache():
            assert repr(plan(snapshot)) == repr(warm)
        return warm

    monkeypatch.setattr(operator, "plan", both)
    outcome = simulate(search(name, settings, faults=Faults(pod=150.0)), checked=True)
    assert outcome.broken == ()
    assert cycles == outcome.plans > 50
    assert len(outcome.trials) == 9


def test_a_plan_that_leaves_a_gpu_idle_is_not_sound() -> None:
    """Trial 0 is at its gate, nothing is ordered: the planner's own order is sound, none is not."""
    job, trial = make_job(max_trials=1), make_trial(0, gpus=["gpu-0"], phase=TrialPhase.GATED)
    snapshot = make_snapshot(jobs=[job], trials=[trial], gpus=[make_gpu("gpu-0", trials=[trial.key])])
    assert violations(snapshot, plan(snapshot)) == ()
    assert violations(snapshot, Plan((), (), None)) == ("job-0 could work and nobody is to work on gpu-0",)
    coming = replace(snapshot, trials=(replace(trial, phase=TrialPhase.PENDING),))
    assert violations(coming, Plan((), (), None)) == (), "a GPU does not wait for an image"


@pytest.mark.parametrize(("name", "settings"), ENDLESS, ids=str)
def test_a_gpu_never_idles_while_a_trial_of_its_own_waits(name: str, settings: Settings) -> None:
    """Under the policies that give nobody up: from the first gate to the last end."""
    outcome = alone(name, settings, points=8)
    assert outcome.broken == ()
    assert max(after.start - before.end for before, after in pairwise(outcome.spans)) < 0.3
    assert len({span.number for span in outcome.spans}) == TRIALS
