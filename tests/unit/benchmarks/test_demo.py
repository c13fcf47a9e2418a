"""The comparison of bench_demo, from searches that have ended."""

from __future__ import annotations

import pytest
from benchmarks.hpo.bench_demo import POLICIES, Search, comparison, manifest, tables

FINALS = {"0": 0.5, "1": 0.9, "2": 0.9}


def search(best: float | None) -> Search:
    """Return a search whose best trial (1) completes after this many seconds; None: it was stopped early."""
    completed = {"0": 10.0} | ({} if best is None else {"1": best})
    return Search(completed, FINALS, 4, 90.0)


def test_every_policy_is_compared_with_fifo_round_robin_and_slaq() -> None:
    times = {"envelope": (20.0, 40.0), "fifo": (80.0, 40.0), "round_robin": (60.0, 90.0), "asha": (None, 20.0)}
    searches = {(name, seed): search(best) for name, pair in times.items() for seed, best in enumerate(pair)}
    figures = comparison(searches, list(times), 2)
    assert figures["envelope"]["seconds"] == [20.0, 40.0]
    assert figures["envelope"]["vs_fifo"] == pytest.approx(2.0)
    assert figures["envelope"]["vs_fifo_worst"] == 1.0
    assert figures["envelope"]["vs_round_robin"] == pytest.approx(2.6)
    assert figures["asha"]["vs_fifo"] == 2.0, "of the seed in which it completed the best trial"
    assert "vs_fifo" not in figures["fifo"]
    assert "vs_slaq" not in figures["envelope"], "slaq did not run"
    page = "\n".join(tables(searches, figures, 2))
    assert "| 0 | 1 (0.9000) | 20 | 80 | 60 | stopped |" in page
    assert "| envelope | 2.00 (1.00) | 2.60 (2.25) |  | 8 |" in page


@pytest.mark.parametrize("policy", POLICIES)
def test_the_job_has_the_policy_and_the_seed(policy: str) -> None:
    job = manifest(policy, 2, 77)
    assert job["spec"]["policy"]["name"] == policy
    assert job["spec"]["search"]["seed"] == 2
    assert "--work=77" in job["spec"]["template"]["spec"]["containers"][0]["command"]
