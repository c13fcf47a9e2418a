"""`make bench-rivals`: the digits search by Ray Tune's ASHA, by Optuna and by Podium, on the same cores of one machine.

Every contender is a process of its own that starts processes of the same training script, one a core at a time. The
clock starts with the contender's process: imports, Ray's cluster, searcher and planner are in it. A contender is
watched until its budget is over both since its start and since its first trial's start, then it is ended. Contenders
take turns, each seed begins with another one. Writes benchmarks/results/bench-rivals.md and .png (with another budget
bench-rivals-SECONDSs) and prints `RESULT {json}`; the rivals live in an environment of their own
(requirements-rivals.lock; the Makefile installs it).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rivals_report import Run, publish, read_run
from rivals_trial import Setup

from podium_core.schema.job import HyperParamJob
from podium_core.schema.manifests import read_manifests
from podium_operator.searchers.random import RandomSearcher

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "benchmarks"
JOB = ROOT / "examples" / "digits" / "job.yaml"
PR_SET_CHILD_SUBREAPER = 36
BUDGET = 20.0  # seconds on all cores
LONGEST_START = 120.0  # seconds in which a contender must have started a trial
CONTENDERS = {  # script, Podium's policy and search.algorithm
    "ray-asha": ("rivals_ray.py", "", ""),
    "optuna": ("rivals_optuna.py", "", ""),
    "podium-hermes": ("rivals_podium.py", "hermes", "random"),
    "podium-envelope": ("rivals_podium.py", "envelope", "random"),
    "podium-envelope-tpe": ("rivals_podium.py", "envelope", "tpe"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rivals", type=Path, default=ROOT / ".venv/rivals/bin/python", help="the rivals' Python")
    parser.add_argument("--seeds", type=int, default=10, help="searches of each contender (default: 10)")
    parser.add_argument("--budget", type=float, default=BUDGET, help=f"seconds on all cores (default: {BUDGET:g})")
    parser.add_argument("--trials", type=int, default=24, help="of a search at most (default: 24)")
    parser.add_argument("--work", type=int, default=40, help="train.py --work: how long an epoch takes (default: 40)")
    parser.add_argument("--cores", type=int, default=min(2, os.cpu_count() or 1), help="(default: 2)")
    parser.add_argument("--only", action="append", choices=CONTENDERS, help="contenders (default: all)")
    parser.add_argument("--note", default="", help="a sentence for the result: what else the machine did meanwhile")
    options = parser.parse_args()
    options.rivals = options.rivals.absolute()  # Ray's workers have a folder of their own; a link stays one
    if not options.rivals.exists():
        sys.exit(f"{options.rivals} is missing: `make bench-rivals` installs the rivals there")
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # whatever a contender leaves behind becomes our child
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    names = options.only or list(CONTENDERS)
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for seed in range(options.seeds):
        for place in range(len(names)):
            name = names[(place + seed) % len(names)]
            found = one_run(options, name, seed)
            runs[name].append(found)
            text = f"seed {seed}, {name}: {found.best(options.budget):.4f} after {options.budget:g} s, "
            print(f"{text}first trial after {found.start:.1f} s, {found.opened} trials opened", flush=True)
    publish(runs, vars(options) | named(options), versions(options.rivals))


def named(options: argparse.Namespace) -> dict[str, str]:
    """The command, and the files of its results: another budget has files of its own."""
    if options.budget == BUDGET:
        return {"command": "make bench-rivals", "name": "bench-rivals"}
    budget = f"{options.budget:g}"
    return {"command": f"python benchmarks/bench_rivals.py --budget {budget}", "name": f"bench-rivals-{budget}s"}


def one_run(options: argparse.Namespace, name: str, seed: int) -> Run:
    script, policy, search = CONTENDERS[name]
    folder = Path(tempfile.mkdtemp(prefix="rivals-", dir="/tmp"))  # short: Ray's sockets lie in it
    try:
        setup, file = prepared(options, folder, seed, policy, search), folder / "setup.json"
        setup.write(file)
        python = sys.executable if policy else str(options.rivals)
        begun = time.monotonic()
        with (folder / "said").open("wb") as said:
            process = subprocess.Popen(
                [python, str(HERE / script), str(file)], stdout=said, stderr=said, start_new_session=True
            )
            watch(process, Path(setup.log), begun, options.budget)
            watched, failed = time.monotonic() - begun, process.poll()
        end_all()
        if failed:
            sys.exit(f"{name} ended with {failed}:\n{(folder / 'said').read_text(errors='replace')[-3000:]}")
        run = read_run(Path(setup.log), begun, watched, setup.epochs)
        if not run.values:  # no contest: something is broken
            said_so = (folder / "said").read_text(errors="replace")[-3000:]
            sys.exit(f"{name} opened {run.opened} trials and got no value of any:\n{said_so}")
        return run
    finally:
        end_all()  # a Ctrl-C leaves nothing either
        shutil.rmtree(folder, ignore_errors=True)


def prepared(options: argparse.Namespace, folder: Path, seed: int, policy: str, search: str) -> Setup:
    payload = read_manifests([JOB])[0]
    spec = HyperParamJob.model_validate(payload).spec
    spec = spec.model_copy(update={"search": spec.search.model_copy(update={"seed": seed})})
    drawn = [RandomSearcher().propose(spec, number) for number in range(options.trials)]
    return Setup(
        python=str(options.rivals),
        script=str(ROOT / "examples" / "digits" / "train.py"),
        job=str(JOB),
        log=str(folder / "log.jsonl"),
        scratch=str(folder),
        policy=policy,
        search=search,
        seed=seed,
        cores=options.cores,
        trials=options.trials,
        epochs=int(spec.trials.max_steps or 0),
        work=options.work,
        space=payload["spec"]["parameters"],
        drawn=[dict(one) for one in drawn if one is not None],
    )


def watch(process: subprocess.Popen[bytes], log: Path, begun: float, budget: float) -> None:
    """Until the budget is over by either count, or the contender has ended."""
    first: float | None = None
    while process.poll() is None:
        time.sleep(0.1)
        if first is None and log.exists() and (line := log.read_text().partition("\n"))[1]:
            first = float(json.loads(line[0])["time"])
        if first is None and time.monotonic() > begun + LONGEST_START:
            raise RuntimeError(f"no trial was started within {LONGEST_START:g} s")
        if first is not None and time.monotonic() > first + budget:
            return


def end_all() -> None:
    """SIGKILL for every process that descends from this one, until none is left. All have been started by it, and what
    they leave behind becomes its own child.
    """
    while found := children(os.getpid()):
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            os.waitpid(-1, 0)  # grandchildren come to us as their parents go
        except ChildProcessError:
            return


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def versions(rivals: Path) -> dict[str, Any]:
    code = "import importlib.metadata as m, json; print(json.dumps({n: m.version(n) for n in ('ray', 'optuna')}))"
    found: dict[str, Any] = json.loads(subprocess.check_output([str(rivals), "-c", code]))
    return found


if __name__ == "__main__":
    main()
