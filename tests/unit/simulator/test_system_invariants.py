"""Invariants of the simulated system.

One holder per GPU, every trial ends, all training is accounted for, and the same seed gives the same bits.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import curve, job

from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.rebalancing import RebalancingRules
from podium_core.domain.snapshot import CheckpointScope
from podium_core.policies.registry import NAMES
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import Drain, Faults, Method, NodeSpec, Scenario, Timing
from podium_simulator.system.results.outcome import TRAINING, Span


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    memory = draw(st.sampled_from([0, 10]))
    nodes = tuple(
        NodeSpec(f"node-{i}", draw(st.integers(1, 2)), draw(st.integers(1, 3)), memory)
        for i in range(draw(st.integers(1, 2)))
    )
    values = st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=6)
    jobs = []
    for i in range(draw(st.integers(1, 3))):
        gap = draw(st.sampled_from([0.7, 3.0, 20.0]))
        curves = tuple(curve(*v, gap=gap) for v in draw(st.lists(values, min_size=1, max_size=8)))
        freezes = draw(st.booleans())
        workers = draw(st.integers(1, len(nodes)))
        each = draw(st.integers(1, min(n.gpus for n in nodes) if workers > 1 else min(2, max(n.gpus for n in nodes))))
        saves_at: CheckpointScope = draw(st.sampled_from(["nowhere", "anywhere"])) if freezes else "anywhere"
        of = job(
            *curves,
            policy=draw(st.sampled_from(NAMES)),
            name=f"job-{i}",
            created=draw(st.sampled_from([0.0, 5.0, 40.0])),
            max_failed=9,
            retries=draw(st.integers(0, 2)),
            gpus_per_trial=workers * each,
            workers=workers,
            suspendable=freezes,
            checkpointable=saves_at != "nowhere",
            checkpoint_scope=saves_at,
            memory=draw(st.sampled_from([None, 4, 6])),
        )
        method = Method(suspend=draw(st.sampled_from([0.0, 0.5])), resume=0.5, jitter=0.3)
        jobs.append(replace(of, method=method, checkpoints=draw(st.booleans())))
    away = draw(st.booleans())
    faults = Faults(node=300.0, repair=20.0, pod=200.0, crash=200.0) if away else Faults()
    if draw(st.booleans()):
        lasts = draw(st.sampled_from([5.0, 90.0]))
        faults = replace(faults, silence=draw(st.sampled_from([20.0, 200.0])), silent=lasts)
    rules = draw(st.sampled_from([None, RebalancingRules(min_stay=2.0)]))
    timing = Timing(telemetry=draw(st.sampled_from([0.0, 2.0])))
    drains = tuple(
        Drain(draw(st.sampled_from(nodes)).name, at, at + draw(st.sampled_from([1.0, 30.0, 300.0])))
        for at in draw(st.lists(st.sampled_from([0.0, 3.0, 20.0, 60.0]), max_size=3))
    )
    seed = draw(st.integers(0, 99))
    return Scenario(nodes, tuple(jobs), timing, faults, seed, longest=1e6, rebalancing=rules, drains=drains)


@st.composite
def journeys(draw: st.DrawFn) -> Scenario:
    """Nodes that drain one after another, or fail, under trials that can only migrate live."""
    nodes = tuple(NodeSpec(f"node-{i}", draw(st.integers(1, 2)), 3) for i in range(draw(st.integers(2, 3))))
    jobs = []
    for i in range(draw(st.integers(1, 2))):
        lengths = draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))
        of = job(
            *[curve(*[0.1 * n for n in range(length)], gap=20.0) for length in lengths],
            policy=draw(st.sampled_from(["fifo", "round_robin", "envelope"])),
            name=f"job-{i}",
            max_failed=9,
            retries=2,
            gpus_per_trial=draw(st.integers(1, max(n.gpus for n in nodes))),
            migratable=True,
            memory=1,
            moves_memory=True,
        )
        carry = draw(st.sampled_from([0.0, 5.0, 60.0]))
        method = Method(
            "container-checkpoint", 0.5, 0.5, jitter=0.3, keeps_memory=False, migrates=True, migration_seconds=carry
        )
        jobs.append(replace(of, method=method, checkpoints=draw(st.booleans())))
    at, drains = 0.0, []
    for node in draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=5)):
        at += draw(st.sampled_from([2.0, 15.0, 40.0]))
        drains.append(Drain(node.name, at, at + draw(st.sampled_from([5.0, 60.0, 400.0]))))
    faults = Faults()
    if draw(st.booleans()):
        faults = Faults(node=200.0, repair=20.0, pod=200.0, crash=300.0, silence=100.0, silent=30.0)
    rules = draw(st.sampled_from([None, RebalancingRules(min_stay=2.0)]))
    seed = draw(st.integers(0, 99))
    return Scenario(nodes, tuple(jobs), Timing(), faults, seed, longest=1e6, rebalancing=rules, drains=tuple(drains))


@settings(max_examples=80, deadline=None)
@given(st.one_of(scenarios(), journeys()))
def test_invariants(scenario: Scenario) -> None:
    outcome = simulate(scenario, checked=True)
    assert outcome.broken == ()
    assert outcome == simulate(scenario, checked=True), "the same seed, the same bits"
    assert all(trial.phase in FINAL for trial in outcome.trials)
    on_gpu: dict[str, list[Span]] = defaultdict(list)
    of_trial: dict[object, list[Span]] = defaultdict(list)
    for span in outcome.spans:
        on_gpu[span.gpu].append(span)
        of_trial[span.trial].append(span)
    for spans in on_gpu.values():
        spans.sort(key=lambda s: s.start)
        assert all(a.end <= b.start + 1e-9 for a, b in pairwise(spans)), "one holder a GPU"
    jobs = {job.key: job for job in scenario.jobs}
    for trial in outcome.trials:
        width = jobs[trial.job].view.gpus.per_trial
        trained = sum(s.seconds for s in of_trial[trial.trial] if s.use == TRAINING) / width
        assert trial.gpu_seconds == pytest.approx(sum(s.seconds for s in of_trial[trial.trial]))
        if trial.phase is TrialPhase.SUCCEEDED:
            own = jobs[trial.job].curves
            assert trained == pytest.approx(own[trial.number % len(own)].length + trial.lost_seconds)
