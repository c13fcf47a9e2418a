"""Two searches by Optuna, by Ray Tune and by Podium, on the same cores of one machine.

    make bench-rivals [SEEDS=10] [OUT=FOLDER]           (an idle machine; an hour)
    python -m benchmarks.rivals.bench_rivals [--rivals PYTHON] [--seeds 10] [--budget 30] [--task digits]

The tasks: a network on the digits (4 parameters), and gradient-boosted trees (6 parameters). The contenders: Optuna's
TPE with its Hyperband pruner; Ray Tune's ASHA over random points, and over those of its OptunaSearch; Podium's default
policy with `random` and with `auto`.

Every contender is a process that starts processes of the same training script, one a core at a time. The clock starts
with the contender's process, so imports, Ray's cluster, searcher and planner count. A contender is watched until its
budget is over, both since its start and since its first trial's start; then it is ended. Contenders alternate, and each
seed begins with another one. The rivals have an environment of their own (requirements.lock); the Makefile installs it.

Writes bench-rivals.md and .png into `--out` (with another budget bench-rivals-SECONDSs); the last line is RESULT
{json}.
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

from benchmarks.command_line import Parser
from benchmarks.inputs import positive
from benchmarks.output import add_out, command
from benchmarks.rivals.report import Run, publish, read_run
from benchmarks.rivals.tasks import TASKS, Task
from benchmarks.rivals.training import Setup
from podium_core.schema.job import HyperParamJob
from podium_core.schema.manifests import read_manifests
from podium_searchers.random import RandomSearcher

ROOT = Path(__file__).resolve().parents[2]
PR_SET_CHILD_SUBREAPER = 36
BUDGET = 30.0  # seconds on all cores
MAX_START = 120.0  # seconds within which a contender must have started a trial
CONTENDERS = {  # module, Podium's policy, and the search algorithm
    "optuna": ("contender_optuna", "", "tpe"),
    "ray-asha": ("contender_ray", "", "random"),
    "ray-asha-optuna": ("contender_ray", "", "optuna"),
    "podium-random": ("contender_podium", "envelope", "random"),
    "podium-auto": ("contender_podium", "envelope", "auto"),
}


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--rivals", type=Path, default=ROOT / ".venv/rivals/bin/python", help="the rivals' Python")
    parser.add_argument("--seeds", type=positive, default=10, help="searches of each contender (default: 10)")
    parser.add_argument("--budget", type=float, default=BUDGET, help=f"seconds on all cores (default: {BUDGET:g})")
    parser.add_argument("--trials", type=positive, default=60, help="of a search at most (default: 60)")
    parser.add_argument("--task", action="append", choices=TASKS, help="tasks (default: all)")
    parser.add_argument("--cores", type=positive, default=min(2, os.cpu_count() or 1), help="(default: 2)")
    parser.add_argument("--only", action="append", choices=CONTENDERS, help="contenders (default: all)")
    parser.add_argument("--note", default="", help="a sentence for the page: what else the machine did meanwhile")
    add_out(parser)
    options = parser.parse_args()
    options.rivals = options.rivals.absolute()  # Ray's workers have a folder of their own; symbolic links are kept
    if not options.rivals.exists():
        sys.exit(f"{options.rivals} is missing; run `make bench-rivals`, which installs the rivals there")
    ctypes.CDLL(None).prctl(
        PR_SET_CHILD_SUBREAPER, 1
    )  # processes that a contender leaves behind become children of this one
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    tasks, names = options.task or list(TASKS), options.only or list(CONTENDERS)
    runs: dict[str, dict[str, list[Run]]] = {task: {name: [] for name in names} for task in tasks}
    for seed in range(options.seeds):
        for task in tasks:
            for turn in range(len(names)):
                name = names[(turn + seed) % len(names)]
                run = one_run(options, TASKS[task], name, seed)
                runs[task][name].append(run)
                text = f"seed {seed}, {task}, {name}: {run.best(options.budget / 2):.4f} at half, "
                text += f"{run.best(options.budget):.4f} after {options.budget:g} s, "
                print(f"{text}first trial after {run.start:.1f} s, {run.started} trials started", flush=True)
    publish(runs, vars(options) | names_of(options), versions(options.rivals))


def names_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the command, and the stem of the result files: another budget has files of its own."""
    suffix = "" if options.budget == BUDGET else f"-{options.budget:g}s"
    return {"command": command(), "name": f"bench-rivals{suffix}"}


def one_run(options: argparse.Namespace, task: Task, name: str, seed: int) -> Run:
    """Run one contender once."""
    module, policy, search = CONTENDERS[name]
    folder = Path(tempfile.mkdtemp(prefix="rivals-", dir="/tmp"))  # a short path, because Ray's sockets are in it
    try:
        setup, file = prepared(options, task, folder, seed, policy, search), folder / "setup.json"
        setup.write(file)
        python = sys.executable if policy else str(options.rivals)
        begun = time.monotonic()
        # Ray's workers need the path too
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")] if policy else [])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        argv = [python, "-m", f"benchmarks.rivals.{module}", str(file)]
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(argv, stdout=output, stderr=output, start_new_session=True, env=environment)
            watch(process, Path(setup.log), begun, options.budget)
            watched, failed = time.monotonic() - begun, process.poll()
        end_all()
        if failed:
            sys.exit(f"{name} ended with {failed}:\n{(folder / 'output').read_text(errors='replace')[-3000:]}")
        run = read_run(Path(setup.log), begun, watched, setup.epochs)
        if not run.values:  # nothing to compare: something is broken
            printed = (folder / "output").read_text(errors="replace")[-3000:]
            sys.exit(f"{name} started {run.started} trials and received no value:\n{printed}")
        return run
    finally:
        end_all()  # also after Ctrl-C
        shutil.rmtree(folder, ignore_errors=True)


def prepared(options: argparse.Namespace, task: Task, folder: Path, seed: int, policy: str, search: str) -> Setup:
    """Return the setup of one run."""
    payload = read_manifests([task.job])[0]
    spec = HyperParamJob.model_validate(payload).spec
    spec = spec.model_copy(update={"search": spec.search.model_copy(update={"seed": seed})})
    drawn = [RandomSearcher().propose(spec, number) for number in range(options.trials)]
    return Setup(
        python=str(options.rivals),
        script=str(task.script),
        job=str(task.job),
        log=str(folder / "log.jsonl"),
        scratch=str(folder),
        policy=policy,
        search=search,
        seed=seed,
        cores=options.cores,
        trials=options.trials,
        epochs=int(spec.trials.max_steps or 0),
        work=task.work,
        space=payload["spec"]["parameters"],
        drawn=[dict(one) for one in drawn if one is not None],
    )


def watch(process: subprocess.Popen[bytes], log: Path, begun: float, budget: float) -> None:
    """Wait until the budget is over by both counts, or the contender has ended."""
    first: float | None = None
    while process.poll() is None:
        time.sleep(0.1)
        if first is None and log.exists() and (line := log.read_text().partition("\n"))[1]:
            first = float(json.loads(line[0])["time"])
        if first is None and time.monotonic() > begun + MAX_START:
            raise RuntimeError(f"no trial was started within {MAX_START:g} s")
        if first is not None and time.monotonic() > first + budget:
            return


def end_all() -> None:
    """Kill every descendant of this process until none remains.

    This process has started all of them, and processes that they leave behind become its children.
    """
    while pids := children(os.getpid()):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            os.waitpid(-1, 0)  # grandchildren become children when their parents end
        except ChildProcessError:
            return


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def versions(rivals: Path) -> dict[str, Any]:
    """Return the versions of Ray and Optuna in the rivals' environment."""
    code = "import importlib.metadata as m, json; print(json.dumps({n: m.version(n) for n in ('ray', 'optuna')}))"
    by_package: dict[str, Any] = json.loads(subprocess.check_output([str(rivals), "-c", code]))
    return by_package


if __name__ == "__main__":
    main()
