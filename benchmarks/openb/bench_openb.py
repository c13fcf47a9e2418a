"""Share of a production cluster's GPUs that each placement policy allocates: the openb trace, as the FGD paper uses it.

    make bench-openb [PODS=FILE] [NODES=FILE] [SEEDS=10] [OUT=FOLDER]
    python -m benchmarks.openb.bench_openb [--pods FILE] [--nodes FILE] [--seeds 10] [--policies ...] [--without-cpus]

Pods arrive in random order and remain; further pods are drawn from the trace until they request 130 % of the GPUs. The
policies know what the extender knows, and the device plugin's rule chooses the GPUs. With `--without-cpus` they do not
know free CPUs, as where the extender may not watch all pods. The expected figures are the authors' own results (Weng et
al., USENIX ATC 2023; expected_results of their repository, default trace, 10 seeds). They and the bars are shown only
for the default trace.

Writes bench-openb.md and .png into `--out` after each run, so that an interrupted benchmark leaves its results. Other
files of pods or nodes give bench-openb-STEM.md, and `--without-cpus` bench-openb-without-cpus.md. The last line is
RESULT {json}.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path

import matplotlib
import numpy as np

from benchmarks.command_line import Parser
from benchmarks.inputs import NODES, PODS, positive
from benchmarks.openb.replay import Replay, Trace, add_trace, read_trace, replay
from benchmarks.output import add_out, command, commit, result_line, write_page
from podium_core.placement.policies.registry import DEFAULT, placement_policy

matplotlib.use("Agg")
from matplotlib import pyplot as plt

SHARE = 1.3
# policy -> percent allocated at 100 % and at 130 % arrivals, by the authors; and the tolerance
EXPECTED = {"random": (86.30, 87.47), "binpack": (92.86, 93.08), "fragmentation": (95.23, 95.39)}
TOLERANCE = 0.5
AIM = 96.0  # of Podium's default, at 130 %
FEW = {"load_balance": 1, "spread": 1}  # seeds: these policies are not made for packing
ORDER = (DEFAULT, "fragmentation", "binpack", "random", "spread", "load_balance")
PACKING = (DEFAULT, "fill", "binpack")
LEVELS = (70, 80, 90, 95, 100, 110, 130)
Runs = Mapping[str, list[Replay]]


def mean(runs: list[Replay], level: float) -> float:
    """Return the mean percent allocated at this level of arrivals."""
    return statistics.mean(run.at(level) for run in runs)


def spread(runs: list[Replay], level: float) -> float:
    """Return the standard deviation over the seeds of the percent allocated."""
    return statistics.stdev(run.at(level) for run in runs) if len(runs) > 1 else 0.0


def bars(runs: Runs) -> dict[str, bool]:
    """Return the bars for which there are runs, and whether they are kept."""
    kept: dict[str, bool] = {}
    for name, (at_100, at_130) in EXPECTED.items():
        if runs.get(name):
            kept[f"{name} at 100 %: {at_100} +- {TOLERANCE}"] = abs(mean(runs[name], 100) - at_100) <= TOLERANCE
            if name == "fragmentation":
                kept[f"{name} at 130 %: {at_130} +- {TOLERANCE}"] = abs(mean(runs[name], 130) - at_130) <= TOLERANCE
    if runs.get(DEFAULT) and runs.get("fragmentation"):
        for level in (100, 130):
            default, fragmentation = (mean(runs[name], level) for name in (DEFAULT, "fragmentation"))
            kept[f"the default, {DEFAULT}, above fragmentation at {level} %"] = default > fragmentation
        kept[f"the default, {DEFAULT}, at 130 %: {AIM:g} (aim)"] = mean(runs[DEFAULT], 130) >= AIM
    return kept


def page(runs: Runs, trace: Trace, *, published: bool, image: str) -> str:
    """Return the page. `published`: with the authors' figures and the bars."""
    head = f"""# {image.removesuffix(".png")}

`{command()}` (commit {commit()}): {trace} of a production cluster
in random order, grown to 130 % of the GPUs, placed by the extender's own code. Percent of all GPUs allocated, mean
(standard deviation).

| policy | seeds | allocated_100 | allocated_130 |{" authors, 100 % | authors, 130 % |" if published else ""}
| --- | --- | --- | --- |{" --- | --- |" if published else ""}
"""
    rows = []
    for name, seeds in runs.items():
        if seeds:
            figures = " | ".join(f"{mean(seeds, level):.2f} ({spread(seeds, level):.2f})" for level in (100, 130))
            authors = " | ".join(f"{value:.2f}" for value in EXPECTED[name]) if name in EXPECTED else "- | -"
            rows.append(f"| {name} | {len(seeds)} | {figures} |{f' {authors} |' if published else ''}\n")
    verdicts = "".join(f"- {bar}: {'kept' if kept else '**not kept**'}\n" for bar, kept in bars(runs).items())
    over_levels = "".join(
        f"| {name} |{''.join(f' {mean(seeds, level):.2f} |' for level in LEVELS)}\n"
        for name, seeds in runs.items()
        if seeds
    )
    tail = f"""
{verdicts if published else ""}
allocated_100 and allocated_130: when the pods that have arrived request 100 % and 130 % of the GPUs. `{DEFAULT}` is
Podium's default: `fill` for these pods, which are not trials. `fragmentation` is FGD, `binpack` the authors' BestFit.
`fill` has two constants (WEIGHT, STEPS), chosen on seeds 100 to 103, none of which is reported here, and on no other
trace. `load_balance` and `spread` keep trials apart on purpose (trials of one GPU share its time).

The same at each level of arrivals, percent of all GPUs requested so far (the allocated share cannot exceed it):

| policy |{"".join(f" {level} |" for level in LEVELS)}
| --- |{" --- |" * len(LEVELS)}
{over_levels}
The policies know what the extender knows: free CPUs from its watches of nodes and pods. The device plugin's rule
chooses the GPUs of a node (the fullest that fit), except for `random`. Without CPUs: `--without-cpus`.

![allocated over arrivals]({image})
"""
    return head + "".join(rows) + tail


def page_without_cpus(runs: Runs, name: str) -> str:
    """Return the page of the runs in which policies do not know free CPUs."""
    rows = "".join(
        f"| {policy} | {len(seeds)} | {mean(seeds, 100):.2f} ({spread(seeds, 100):.2f}) "
        f"| {mean(seeds, 130):.2f} ({spread(seeds, 130):.2f}) |\n"
        for policy, seeds in runs.items()
        if seeds
    )
    return f"""# {name}

`{command()}` (commit {commit()}): as [bench-openb](bench-openb.md), but the policies do not know the nodes' free CPUs,
of which the trace has too few, as with `extender.watchAllPods: false`. kube-scheduler filters by them all the same.
Percent of all GPUs allocated, mean (standard deviation). `{DEFAULT}`, the default, is then `fragmentation` for pods
that are not trials.

| policy | seeds | allocated_100 | allocated_130 |
| --- | --- | --- | --- |
{rows}"""


def plot(runs: Runs, path: Path) -> None:
    """Draw the percent allocated over the percent that has arrived."""
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    grid = np.linspace(70, 100 * SHARE, 121)
    for name, seeds in runs.items():
        if seeds:
            axes.plot(grid, [mean(seeds, level) for level in grid], label=name)
    axes.set_xlabel("arrived, % of all GPUs")
    axes.set_ylabel("allocated, % of all GPUs")
    axes.set_ylim(70, 100)
    axes.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def figures(runs: Runs) -> dict[str, dict[str, float]]:
    """Return the figures for RESULT by policy."""
    return {
        name: {f"allocated_{level}": round(mean(seeds, level), 2) for level in (100, 130)} | {"seeds": len(seeds)}
        for name, seeds in runs.items()
    }


def main() -> None:
    parser = Parser(__doc__)
    add_trace(parser)
    parser.add_argument("--seeds", type=positive, default=10, help="orders of arrival (default: 10)")
    parser.add_argument("--policies", help=f"with commas between (default: {','.join(ORDER)})")
    parser.add_argument("--without-cpus", action="store_true", help="the policies do not know free CPUs")
    add_out(parser)
    options = parser.parse_args()
    if options.seeds < 1:
        parser.error(f"--seeds: {options.seeds}; give 1 or more")
    names = options.policies.split(",") if options.policies else PACKING if options.without_cpus else ORDER
    policies = {}
    for name in names:
        try:
            policies[name] = placement_policy(name)
        except ValueError as error:
            parser.error(f"--policies: {error}")
    trace = read_trace(options.pods, options.nodes)
    default_pods, default_nodes = options.pods.resolve() == PODS, options.nodes.resolve() == NODES
    default = default_pods and default_nodes
    other = options.nodes.stem if default_pods else options.pods.stem
    stem = f"bench-openb{'' if default else f'-{other}'}{'-without-cpus' if options.without_cpus else ''}"
    path = options.out / f"{stem}.md"
    runs: dict[str, list[Replay]] = {name: [] for name in policies}
    for name, policy in policies.items():
        for seed in range(min(options.seeds, FEW.get(name, options.seeds))):
            run = replay(trace, policy, seed, SHARE, cpus=not options.without_cpus)
            runs[name].append(run)
            print(f"{name} seed {seed}: {run.at(100):.2f} at 100 %, {run.at(130):.2f} at 130 %", flush=True)
            if options.without_cpus:
                write_page(path, page_without_cpus(runs, stem))
            else:
                write_page(path, page(runs, trace, published=default, image=f"{stem}.png"))
                plot(runs, path.with_suffix(".png"))
    result: dict[str, object] = {"policies": figures(runs)}
    if default and not options.without_cpus:
        result["bars"] = bars(runs)
    print(result_line(result))


if __name__ == "__main__":
    main()
