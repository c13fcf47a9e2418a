"""The table of phases: every pair is either a transition with reasons or refused."""

from __future__ import annotations

from itertools import product

import pytest

from podium_core.domain.phase import EDGES, FINAL, LIVE, IllegalTransitionError, TrialPhase, check, is_final

P = TrialPhase
PAIRS = list(product(TrialPhase, TrialPhase))


@pytest.mark.parametrize(("start", "end"), PAIRS, ids=lambda phase: str(phase))
def test_every_pair_is_a_transition_with_reasons_or_refused(start: TrialPhase, end: TrialPhase) -> None:
    if (start, end) in EDGES:
        reasons = check(start, end)
        assert reasons
        assert all(reason.isalnum() and reason[0].isupper() for reason in reasons)
    else:
        with pytest.raises(IllegalTransitionError, match=f"{start} cannot change to {end}"):
            check(start, end)


def test_the_rules_of_the_table() -> None:
    assert not any(start in FINAL for start, _ in EDGES), "a finished trial keeps its phase"
    assert all((start, end) in EDGES for start in TrialPhase if start not in FINAL for end in FINAL)
    assert not any(start == end for start, end in EDGES)
    assert {start for start, end in EDGES if end is P.PENDING} == {P.REQUEUED}, "only a new pod makes a trial pending"
    assert {start for start, end in EDGES if end is P.GATED} == {P.PENDING, P.REQUEUED}, "no trial returns to its gate"
    assert all((start, P.REQUEUED) in EDGES for start in (*LIVE, P.PENDING)), "a pod can be lost at any time"


def test_every_phase_is_reachable_and_can_end() -> None:
    seen = {P.PENDING}
    while new := {end for start, end in EDGES if start in seen} - seen:
        seen |= new
    assert seen == set(TrialPhase)
    assert {phase for phase in TrialPhase if is_final(phase)} == set(FINAL)
