"""How much of a production cluster's GPUs each placement policy allocates: the openb trace, the FGD paper's yardstick.

    python benchmarks/bench_openb.py [--trace FOLDER] [--seeds 10] [--without-cpus]

Pods arrive in random order and stay; the list is grown to 130 % of the GPUs. Expected figures: the authors' own results
(Weng et al., USENIX ATC 2023; expected_results of their repository, default trace, 10 seeds). The page is written anew
after each run, so that one that is cut short leaves what it has. Writes benchmarks/results/bench-openb.md and .png,
prints RESULT {json}. The policies are told
what the extender knows, and the device plugin's rule chooses the GPUs. With --without-cpus they do not hear of free
CPUs, as where the extender may not watch all pods: bench-openb-without-cpus.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from collections.abc import Mapping
from pathlib import Path

import matplotlib
import numpy as np
from openb_replay import Replay, Trace, read_trace, replay

from podium_core.placement.registry import DEFAULT, placement_policy

matplotlib.use("Agg")
from matplotlib import pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / "results" / "bench-openb.md"
SHARE = 1.3
# percent allocated at 100 % and at 130 % arrivals, and within how much ours must be
EXPECTED = {"random": (86.30, 87.47), "binpack": (92.86, 93.08), "fragmentation": (95.23, 95.39)}
NEAR = 0.5
AIM = 96.0  # of our own, at 130 %
FEW = {"load_balance": 1, "spread": 1}  # seeds: they are not made for packing
ORDER = (DEFAULT, "fragmentation", "binpack", "random", "spread", "load_balance")
PACKING = (DEFAULT, "fill", "binpack")
LEVELS = (70, 80, 90, 95, 100, 110, 130)
Runs = Mapping[str, list[Replay]]


def mean(runs: list[Replay], asked: float) -> float:
    return statistics.mean(run.at(asked) for run in runs)


def spread(runs: list[Replay], asked: float) -> float:
    return statistics.stdev(run.at(asked) for run in runs) if len(runs) > 1 else 0.0


def bars(runs: Runs) -> dict[str, bool]:
    """The bars of issue 6 for which there are runs."""
    kept: dict[str, bool] = {}
    for name, (at_100, at_130) in EXPECTED.items():
        if runs.get(name):
            kept[f"{name} at 100 %: {at_100} +- {NEAR}"] = abs(mean(runs[name], 100) - at_100) <= NEAR
            if name == "fragmentation":
                kept[f"{name} at 130 %: {at_130} +- {NEAR}"] = abs(mean(runs[name], 130) - at_130) <= NEAR
    if runs.get(DEFAULT) and runs.get("fragmentation"):
        for asked in (100, 130):
            ours, theirs = (mean(runs[name], asked) for name in (DEFAULT, "fragmentation"))
            kept[f"our default, {DEFAULT}, above fragmentation at {asked} %"] = ours > theirs
        kept[f"our default, {DEFAULT}, at 130 %: {AIM:g} (aim)"] = mean(runs[DEFAULT], 130) >= AIM
    return kept


def page(runs: Runs) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    head = f"""# bench-openb

`make bench-openb` (commit {commit.stdout.strip()}): 1,213 nodes, 6,212 GPUs, 8,152 pods of a production cluster in
random order, grown to 130 % of the GPUs, placed by the extender's own Judge. Percent of all GPUs allocated, mean
(standard deviation).

| policy | seeds | at 100 % arrivals | at 130 % | authors, 100 % | authors, 130 % |
| --- | --- | --- | --- | --- | --- |
"""
    rows = []
    for name, found in runs.items():
        if found:
            told = " | ".join(f"{mean(found, asked):.2f} ({spread(found, asked):.2f})" for asked in (100, 130))
            expected = " | ".join(f"{value:.2f}" for value in EXPECTED[name]) if name in EXPECTED else "- | -"
            rows.append(f"| {name} | {len(found)} | {told} | {expected} |\n")
    verdicts = "".join(f"- {bar}: {'kept' if kept else '**not kept**'}\n" for bar, kept in bars(runs).items())
    levels = "".join(f" {asked} |" for asked in LEVELS)
    over = "".join(
        f"| {name} |{''.join(f' {mean(found, asked):.2f} |' for asked in LEVELS)}\n"
        for name, found in runs.items()
        if found
    )
    tail = f"""
{verdicts}
`{DEFAULT}` is our default: `fill` for these pods, which are no trials. `fragmentation` is FGD, `binpack` their BestFit.
`fill` has two numbers (WEIGHT, STEPS), chosen on seeds 100 to 103, none of which is reported here; it was tried on no
other trace. `load_balance` and `spread` keep trials apart on purpose (those of one GPU take turns).

The same at each level of arrivals, percent of all GPUs asked for so far (what is allocated cannot be more):

| policy |{levels}
| --- |{" --- |" * len(LEVELS)}
{over}
The policies are told what the extender knows: free CPUs from its watches of nodes and pods. Which GPUs of a node a
pod gets is the device plugin's rule (the fullest that hold it), but for `random`. Without CPUs: `--without-cpus`.

![allocated over arrivals](bench-openb.png)
"""
    return head + "".join(rows) + tail


def blind_page(runs: Runs) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    rows = "".join(
        f"| {name} | {len(found)} | {mean(found, 100):.2f} ({spread(found, 100):.2f}) "
        f"| {mean(found, 130):.2f} ({spread(found, 130):.2f}) |\n"
        for name, found in runs.items()
        if found
    )
    return f"""# bench-openb-without-cpus

`python benchmarks/bench_openb.py --without-cpus` (commit {commit.stdout.strip()}): as
[bench-openb](bench-openb.md), but the policies do not hear of the nodes' free CPUs, which the trace is short of
(kube-scheduler filters by them all the same), as with `extender.watchAllPods: false`. Percent of all GPUs allocated,
mean (standard deviation). `{DEFAULT}`, the default, is `fragmentation` then for pods that are no trials.

| policy | seeds | at 100 % arrivals | at 130 % |
| --- | --- | --- | --- |
{rows}"""


def plot(runs: Runs) -> None:
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    grid = np.linspace(70, 100 * SHARE, 121)
    for name, found in runs.items():
        if found:
            axes.plot(grid, [mean(found, asked) for asked in grid], label=name)
    axes.set_xlabel("arrived, % of all GPUs")
    axes.set_ylabel("allocated, % of all GPUs")
    axes.set_ylim(70, 100)
    axes.legend()
    figure.savefig(RESULTS.with_suffix(".png"), dpi=110)
    plt.close(figure)


def measure_without_cpus(trace: Trace, seeds: int) -> None:
    runs: dict[str, list[Replay]] = {name: [] for name in PACKING}
    for seed in range(seeds):
        for name, found in runs.items():
            found.append(replay(trace, placement_policy(name), seed, SHARE, cpus=False))
            print(f"{name} seed {seed}: {found[-1].at(100):.2f} at 100 %, {found[-1].at(130):.2f} at 130 %", flush=True)
            RESULTS.with_stem("bench-openb-without-cpus").write_text(blind_page(runs), encoding="utf-8")
    told = {name: [round(mean(found, asked), 2) for asked in (100, 130)] for name, found in runs.items()}
    print("RESULT", json.dumps({"without CPUs": told}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=ROOT.parent / "shared" / "traces" / "openb")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--without-cpus", action="store_true")
    options = parser.parse_args()
    if options.without_cpus:
        measure_without_cpus(read_trace(options.trace), options.seeds)
        return
    trace = read_trace(options.trace)
    runs: dict[str, list[Replay]] = {name: [] for name in ORDER}
    for name in ORDER:
        for seed in range(min(options.seeds, FEW.get(name, options.seeds))):
            run = replay(trace, placement_policy(name), seed, SHARE)
            runs[name].append(run)
            print(f"{name} seed {seed}: {run.at(100):.2f} at 100 %, {run.at(130):.2f} at 130 %", flush=True)
            RESULTS.write_text(page(runs), encoding="utf-8")
            plot(runs)
    told = {name: [round(mean(found, asked), 2) for asked in (100, 130)] for name, found in runs.items()}
    print("RESULT", json.dumps({"allocated": told, "bars": bars(runs)}))


if __name__ == "__main__":
    main()
