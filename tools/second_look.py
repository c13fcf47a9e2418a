"""Run a few failed tests on real clusters once more, alone and on a new cluster. `make test` calls it.

A real cluster on a shared machine has accidents without a defect, such as an execve that the kernel refused with
EFAULT, once in some hundred thousand. They must not reject a change. Kubernetes' own suites also repeat tests (flake
attempts of ginkgo). A test that fails twice has failed. More than AT_MOST failed tests, and a run that did not reach
its end, are not repeated. Tests that build on each other (STORIES) are repeated as one file. A test during which a
worker of pytest-xdist crashed counts as failed. The last lines name tests that passed only the second time: each is a
race or an accident, and has to be examined.

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
STORIES = (
    *(f"tests/integration/test_{name}.py" for name in ("agent", "exclusive", "reservations", "cpu_downsizing")),
    *(f"tests/e2e/test_{name}.py" for name in ("nvidia", "kueue", "dra")),
)
# written by pytest's cacheprovider; the run removed it at its start
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
CRASHED = Path(".pytest_cache/v/podium/crashed")  # written by tests/crashed_workers.py, one entry per crash


def refusal(status: int, failed: Sequence[str], crashed: Sequence[str] = ()) -> str | None:
    """Return why the tests are not repeated, or None."""
    if status != TESTS_FAILED:
        return f"the run ended with status {status}, not with failed tests"
    if not failed:
        return "no failed test was recorded"
    if len(crashed) > AT_MOST:
        return f"workers crashed {len(crashed)} times, so the run may be incomplete"
    if len(failed) > AT_MOST:
        return f"{len(failed)} tests failed; more than {AT_MOST} are not an accident"
    if files := [test for test in failed if "::" not in test and test not in STORIES]:
        return f"{', '.join(files)} could not be read"
    return None


def of_clusters(last_failed: Mapping[str, bool]) -> list[str]:
    """Return the failed tests on real clusters, sorted; a file of STORIES stands for its tests."""
    failed = (test for test in last_failed if test.startswith(LAYERS))
    return sorted({file if (file := test.partition("::")[0]) in STORIES else test for test in failed})


def main(status: int) -> int:
    """Repeat the failed tests and return the exit status."""
    crashed = json.loads(CRASHED.read_text()) if CRASHED.exists() else []
    last_failed = json.loads(LAST_FAILED.read_text()) if LAST_FAILED.exists() else {}
    failed = of_clusters(last_failed | dict.fromkeys(crashed, True))
    if why := refusal(status, failed, crashed):
        print(f"make test: failed tests are not repeated: {why}.", flush=True)
        return status
    print(f"make test: repeating {len(failed)} failed tests on a cluster: {', '.join(failed)}", flush=True)
    # one worker, which has the first worker's cluster with loaded images
    one = ("--numprocesses=1", "--dist=loadfile", "--no-loadscope-reorder")
    again = subprocess.run([sys.executable, "-m", "pytest", *one, *failed], check=False)
    if again.returncode == 0:
        print(f"make test: FLAKY, failed first and passed alone: {', '.join(failed)}. Find the cause.", flush=True)
    return again.returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
