"""Complete plans of every policy in a simulated search.

In every cycle they are valid and work-conserving, and they are the same after a restart of the planner.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from policy_searches import TRIALS, search_scenario, single_gpu_search
from policy_variants import VARIANTS, Settings

from podium_core.curves.curve_table import empty_cache
from podium_core.domain.actions import Plan
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Snapshot
from podium_core.planning.invariants import violations
from podium_core.planning.planner import Decision, decide, plan
from podium_core.policies.registry import create
from podium_core.testing.builders import make_gpu, make_job, make_snapshot, make_trial
from podium_simulator.system import operator
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import Faults

NEVER_STOPPING = [(name, settings) for name, settings in VARIANTS if not create(name, settings).cuts]


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_plans_are_valid_and_do_not_depend_on_earlier_cycles(
    name: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare a planner that remembers the whole run with one that remembers nothing, in each cycle.

    Nine trials share six slots, and pods fail at random.
    """
    cycles = 0

    def decide_twice(snapshot: Snapshot) -> Decision:
        nonlocal cycles
        cycles += 1
        warm = decide(snapshot)
        with empty_cache():
            assert repr(decide(snapshot)) == repr(warm)
        return warm

    monkeypatch.setattr(operator, "decide", decide_twice)
    outcome = simulate(search_scenario(name, settings, faults=Faults(pod=150.0)), checked=True)
    assert outcome.broken == ()
    assert cycles == outcome.plans > 50
    assert len(outcome.trials) == 9


def test_a_plan_that_leaves_a_gpu_idle_is_invalid() -> None:
    """Trial 0 waits at its gate: the planner's run queue is valid, an empty plan is not."""
    job, trial = make_job(max_trials=1), make_trial(0, gpus=["gpu-0"], phase=TrialPhase.GATED)
    snapshot = make_snapshot(jobs=[job], trials=[trial], gpus=[make_gpu("gpu-0", trials=[trial.key])])
    assert violations(snapshot, plan(snapshot)) == ()
    assert violations(snapshot, Plan((), (), None)) == ("job-0 can run, but no trial is to hold gpu-0",)
    pending = replace(snapshot, trials=(replace(trial, phase=TrialPhase.PENDING),))
    assert violations(pending, Plan((), (), None)) == (), "the GPU may stay idle while the image is pulled"


@pytest.mark.parametrize(("name", "settings"), NEVER_STOPPING, ids=str)
def test_a_gpu_never_idles_while_one_of_its_trials_waits(name: str, settings: Settings) -> None:
    """Holds under the policies that never stop a trial, from the first gate to the last end."""
    outcome = single_gpu_search(name, settings, points=8)
    assert outcome.broken == ()
    assert max(after.start - before.end for before, after in pairwise(outcome.spans)) < 0.3
    assert len({span.number for span in outcome.spans}) == TRIALS
