"""What-if analysis: the planner on a changed snapshot, as docs/explanation/simulation.md shows."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from podium_core.domain.actions import CreateTrial, WriteRunQueues
from podium_core.domain.phase import TrialPhase
from podium_core.planning.planner import plan
from podium_core.testing.builders import make_gpu, make_job, make_snapshot, make_trial

DOC = Path(__file__).parents[2] / "docs" / "explanation" / "simulation.md"


def test_the_documented_what_if_example_runs() -> None:
    """Run the example of docs/explanation/simulation.md: one more GPU, and trial 5 pinned."""
    job = make_job(max_trials=8, parallel=None)
    values = {0: (0.1, 0.5, 0.9), 5: (0.1, 0.1, 0.1)}
    phases = {0: TrialPhase.RUNNING, 5: TrialPhase.SUSPENDED}
    trials = [make_trial(n, values=values[n], gpus=["gpu-0"], phase=phases[n]) for n in values]
    keys = [trial.key for trial in trials]
    gpu = make_gpu("gpu-0", slots=2, holder=keys[0], holder_since=0.0, trials=keys, run_queue=keys, in_effect=True)
    snapshot = make_snapshot(jobs=[job], trials=trials, gpus=[gpu])
    original = repr(snapshot)
    code = re.findall(r"^```python\n(.*?)^```", DOC.read_text(), re.MULTILINE | re.DOTALL)[0]
    namespace: dict[str, Any] = {"snapshot": snapshot, "plan": plan, "replace": replace}
    exec(code, namespace)
    before, after = namespace["before"], namespace["after"]
    assert not any(isinstance(action, WriteRunQueues) for action in before.actions)
    (order,) = [action for action in after.actions if isinstance(action, WriteRunQueues)]
    firsts = {uuid: [place.trial.name for place in places] for uuid, places in order.gpus}
    assert firsts == {"gpu-0": ["job-5", "job-0"], "one-more": []}
    assert len([a for a in after.actions if isinstance(a, CreateTrial)]) > len(
        [a for a in before.actions if isinstance(a, CreateTrial)]
    )
    assert (repr(snapshot), repr(plan(snapshot))) == (original, repr(before)), "the original snapshot must not change"
