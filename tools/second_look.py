"""What `make test` does when a few tests on real clusters have failed: runs these alone, once more, on a new cluster.

A real cluster on a shared machine has accidents that are nobody's defect (seen: an execve that the kernel refused with
EFAULT, one of some hundred thousand), and one of them must not refuse a change. Kubernetes' own suites do the same
(ginkgo's --flake-attempts). A test that fails twice has failed; so have more than AT_MOST at once, and a run that
did not reach its end. Tests that are one story, where each goes on from the one before, are one: their file. What
passes only now is named in the last lines: it is a race or an accident, and is looked into. A test with which a worker
of pytest-xdist crashed is one of them.

    python tools/second_look.py STATUS      the exit status of the run that failed
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

AT_MOST = 3
TESTS_FAILED = 1  # pytest's exit status; others are errors, interruptions, nothing collected
LAYERS = ("tests/integration/", "tests/e2e/")
STORIES = tuple(
    f"tests/integration/test_{name}.py" for name in ("agent", "exclusive", "reservations", "cpu_downsizing")
)
# written by pytest's own cacheprovider; the run began without what earlier ones left there (--cache-clear)
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
CRASHED = Path(".pytest_cache/v/podium/crashed")  # by tests/crashed_workers.py, once a crash


def refusal(status: int, failed: Sequence[str], crashed: Sequence[str] = ()) -> str | None:
    """Why there is no second look, or None."""
    if status != TESTS_FAILED:
        return f"the run ended with status {status}, not with failed tests"
    if not failed:
        return "no failed test was written down"
    if len(crashed) > AT_MOST:
        return f"workers crashed {len(crashed)} times: the run may not have come to its end"
    if len(failed) > AT_MOST:
        return f"{len(failed)} tests failed, and more than {AT_MOST} are no accident"
    if files := [test for test in failed if "::" not in test and test not in STORIES]:
        return f"{', '.join(files)} could not be read"
    return None


def of_clusters(last_failed: Mapping[str, bool]) -> list[str]:
    """What failed in the layers that run on real clusters, in a stable order: tests, and files that are one story."""
    failed = (test for test in last_failed if test.startswith(LAYERS))
    return sorted({file if (file := test.partition("::")[0]) in STORIES else test for test in failed})


def main(status: int) -> int:
    crashed = json.loads(CRASHED.read_text()) if CRASHED.exists() else []
    last_failed = json.loads(LAST_FAILED.read_text()) if LAST_FAILED.exists() else {}
    failed = of_clusters(last_failed | dict.fromkeys(crashed, True))
    if why := refusal(status, failed, crashed):
        print(f"make test: no second look: {why}.", flush=True)
        return status
    print(f"make test: a second look at {len(failed)} failed on the cluster: {', '.join(failed)}", flush=True)
    # one worker: it has the first worker's cluster, whose images are loaded
    one = ("--numprocesses=1", "--dist=loadfile", "--no-loadscope-reorder")
    again = subprocess.run([sys.executable, "-m", "pytest", *one, *failed], check=False)
    if again.returncode == 0:
        print(f"make test: FLAKY, failed first and passed alone: {', '.join(failed)}. To be looked into.", flush=True)
    return again.returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
