"""Population-based training against random search with the same GPU-seconds: the digits example on this machine.

    make bench-pbt [SEEDS=5] [OUT=FOLDER]
    python -m benchmarks.searchers.bench_pbt [--seeds 5] [--epochs 24] [--population 8] [--work 20]

For each seed, `podium run` first searches with algorithm pbt. Then it searches the same space with algorithm random,
policy fifo and `budget.gpuSeconds` set to what pbt used. Compared are the lowest validation errors; their ratio is
computed within a seed. A core stands for a GPU. Policy round_robin keeps the members of the population together.

Writes bench-pbt.md into `--out`; the last line is RESULT {json}.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.command_line import Parser
from benchmarks.inputs import positive
from benchmarks.output import add_out, command, machine, result_line, write_page
from podium_core.schema.manifests import parse_manifests

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MANY = 10_000  # trials of the random search: the budget ends it


@dataclass(frozen=True, slots=True)
class Search:
    """Result of one search.

    `error`: the lowest share of wrong digits; `children`: trials that began from a copy.
    """

    error: float
    gpu_seconds: float
    trials: int
    children: int


def main() -> None:
    """Run the benchmark."""
    parser = Parser(__doc__)
    parser.add_argument("--seeds", type=positive, default=5)
    parser.add_argument("--epochs", type=positive, default=24)
    parser.add_argument("--population", type=positive, default=8)
    parser.add_argument(
        "--work", type=positive, default=20, help="views of each image per step; time is proportional to it"
    )
    add_out(parser)
    options = parser.parse_args()
    pairs: list[tuple[Search, Search]] = []
    with tempfile.TemporaryDirectory() as name:
        for seed in range(options.seeds):
            population = _run(_pbt(options, seed), Path(name) / f"pbt-{seed}")
            random = _run(_random(options, seed, population.gpu_seconds), Path(name) / f"random-{seed}")
            pairs.append((population, random))
            print(f"seed {seed}: pbt {population}, random {random}", flush=True)
    result = _result(pairs)
    text = _page(options, pairs, result)
    print(text)
    write_page(options.out / "bench-pbt.md", text)
    print(result_line(result))


def _manifest(options: argparse.Namespace) -> dict[str, Any]:
    (manifest,) = parse_manifests((DIGITS / "job.yaml").read_text(), "job.yaml")
    changed: dict[str, Any] = json.loads(json.dumps(dict(manifest), default=str))
    container = changed["spec"]["template"]["spec"]["containers"][0]
    words = [sys.executable, str(DIGITS / "train.py"), f"--epochs={options.epochs}", f"--work={options.work}"]
    container["command"] = [*words, "$(podium.args)"]
    changed["spec"]["checkpoint"]["resumeArgs"] = ["--inherited"]
    return changed


def _pbt(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    changed = _manifest(options)
    settings = {"population": options.population, "interval": options.epochs / 6, "fixed": "width, activation"}
    changed["spec"] |= {
        "search": {"algorithm": "pbt", "seed": seed, "settings": settings},
        "trials": {"max": 4 * options.population, "parallel": options.population, "maxSteps": options.epochs},
        "policy": {"name": "round_robin", "settings": {"quantum": 1.0}},
    }
    return changed


def _random(options: argparse.Namespace, seed: int, gpu_seconds: float) -> dict[str, Any]:
    changed = _manifest(options)
    changed["spec"] |= {
        "search": {"algorithm": "random", "seed": seed},
        "trials": {"max": MANY, "parallel": 2, "maxSteps": options.epochs},
        "policy": {"name": "fifo"},
        "budget": {"gpuSeconds": gpu_seconds},
    }
    return changed


def _run(manifest: Mapping[str, Any], folder: Path) -> Search:
    """Run a search by `podium run` and return its result."""
    folder.mkdir(parents=True)
    (folder / "job.yaml").write_text(json.dumps(manifest))
    words = [sys.executable, "-m", "podium_cli.main", "run", "job.yaml", "--lines", "--gpus", "none", "--folder", "run"]
    slots = str(manifest["spec"]["trials"]["parallel"])
    done = subprocess.run([*words, "--slots", slots], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"podium run ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    trials = [json.loads(path.read_text()) for path in (folder / "run" / "objects").glob("trial-*.json")]
    best = max(one["status"]["best"]["value"] for one in trials if "best" in one["status"])
    return Search(
        1.0 - best,
        sum(one["status"]["gpuSeconds"] for one in trials),
        len(trials),
        sum("parent" in one["spec"] for one in trials),
    )


def _result(pairs: Sequence[tuple[Search, Search]]) -> dict[str, Any]:
    ratios = [population.error / random.error for population, random in pairs if population.error and random.error]
    return {
        "bench": "pbt",
        "seeds": len(pairs),
        "pbt_error": round(statistics.fmean(one.error for one, _ in pairs), 5),
        "random_error": round(statistics.fmean(one.error for _, one in pairs), 5),
        "error_ratio": round(math.exp(statistics.fmean(map(math.log, ratios))), 3) if ratios else None,
        "better": sum(population.error < random.error for population, random in pairs),
        "worse": sum(population.error > random.error for population, random in pairs),
    }


def _page(options: argparse.Namespace, pairs: Sequence[tuple[Search, Search]], result: Mapping[str, Any]) -> str:
    """Return the result page."""
    lines = [
        "# Population-based training",
        "",
        f"`{command()}` on {machine()}.",
        f"The digits example, {options.epochs} epochs, a population of {options.population}; children change the",
        "learning rate and the batch size. Random search has the same GPU-seconds (a core is a GPU).",
        "",
        "| seed | error of pbt | error of random | ratio | GPU-seconds | trials of pbt (children) | trials of random |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for seed, (population, random) in enumerate(pairs):
        ratio = f"{population.error / random.error:.2f}" if random.error else "-"
        lines.append(
            f"| {seed} | {population.error:.4f} | {random.error:.4f} | {ratio} | "
            f"{population.gpu_seconds:.0f} / {random.gpu_seconds:.0f} | {population.trials} ({population.children}) | "
            f"{random.trials} |"
        )
    lines += [
        "",
        f"Geometric mean of the ratios: **{result['error_ratio']}** (below 1: pbt is better). pbt was better with",
        f"{result['better']} of {result['seeds']} seeds, and worse with {result['worse']}.",
        "",
        result_line(result),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
