"""Figures that the documentation quotes are those of the result pages, and each section names its command."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = sorted((ROOT / "docs" / "benchmarks").glob("*.md"))
COMMAND = re.compile(r"`(?:make bench-|python -m benchmarks\.|pytest )|\]\([^)]*benchmarks/results/")
WITHOUT_FIGURES = {"How to read them", "Definitions"}

# page, quoted text, result page, keys of its RESULT
HPO, AGENT, DEMO = "bench-hpo", "bench-agent", "bench-demo"
QUOTED = [
    ("README.md", "**{:.1f} times** as fast to the best of 64 trials", HPO, "gpus/4/taskset/envelope/time_to_best"),
    ("README.md", "worst of 60 runs {:.2f}", HPO, "gpus/4/taskset/envelope/time_to_best_worst"),
    ("README.md", "**{:.1f} times** (95 % interval", HPO, "distinct/algoperf/envelope/time_to_best"),
    (
        "README.md",
        "interval {:.2f} to {:.2f}",
        HPO,
        "distinct/algoperf/envelope/time_to_best_low distinct/algoperf/envelope/time_to_best_high",
    ),
    ("README.md", "**{:.1f} seconds** for a requeue", AGENT, "requeue/s/p50"),
    ("README.md", "**{:.1f} ms** for a suspension", AGENT, "suspension/ms"),
    ("docs/benchmarks/cluster.md", "A suspension costs {:.1f} ms", AGENT, "suspension/ms"),
    ("docs/benchmarks/cluster.md", "A requeue costs {:.2f} s (p50)", AGENT, "requeue/s/p50"),
    *(
        (
            "docs/benchmarks/cluster.md",
            "| {:.2f} ({:.2f})",
            DEMO,
            f"time_to_best/{policy}/vs_{base} time_to_best/{policy}/vs_{base}_worst",
        )
        for policy in ("envelope", "hermes", "asha", "slaq")
        for base in ("fifo", "round_robin")
    ),
    ("docs/how-to/choose-a-policy.md", "of 64 trials {:.2f} times", HPO, "gpus/4/taskset/envelope/time_to_best"),
    ("docs/how-to/choose-a-policy.md", "the factor is {:.2f}", HPO, "gpus/4/algoperf/envelope/time_to_best"),
    *(
        (
            "docs/benchmarks/policies.md",
            " | {:.2f} ({:.2f}) | {:.2f} ({:.2f}) | {:.2f} ({:.2f}) |",
            HPO,
            " ".join(
                f"gpus/4/{key}{end}"
                for key in (
                    f"taskset/{policy}/time_to_best",
                    f"algoperf/{policy}/time_to_target",
                    f"algoperf/{policy}/time_to_best",
                )
                for end in ("", "_worst")
            ),
        )
        for policy in (
            "envelope",
            "best_so_far",
            "hermes",
            "pop_suspend",
            "median_stop",
            "asha",
            "hyperband",
            "slaq",
            "round_robin",
            "oracle",
        )
    ),
    (
        "docs/benchmarks/policies.md",
        "the oracle reaches {:.2f} on TaskSet and {:.2f} on AlgoPerf",
        HPO,
        "gpus/8/taskset/oracle/time_to_best gpus/8/algoperf/oracle/time_to_best",
    ),
    (
        "docs/benchmarks/policies.md",
        "against `round_robin` {:.2f} and `slaq` {:.2f}",
        "bench-hpo-cross-validation",
        "held_out/taskset/time_to_best_vs_round_robin held_out/taskset/time_to_best_vs_slaq",
    ),
    (
        "docs/benchmarks/policies.md",
        "{:.2f} with `freeze` alone, {:.2f} with `[freeze, app-checkpoint]`, {:.2f} with 16 slots",
        "bench-slots",
        " ".join(
            f"time_to_near_best_against_fifo/{setting}/envelope"
            for setting in ("4 slots, freeze", "4 slots, freeze, app-checkpoint", "16 slots, freeze")
        ),
    ),
    (
        "docs/explanation/slots.md",
        "{:.1f} times as fast as first come, first served",
        "bench-slots",
        "time_to_near_best_against_fifo/4 slots, freeze, app-checkpoint/envelope",
    ),
    (
        "docs/benchmarks/gpu.md",
        "p50 {:.1f} ms out and {:.1f} ms in",
        "bench-checkpoint",
        "suspend/overhead_p50_ms resume/overhead_p50_ms",
    ),
    (
        "docs/benchmarks/scheduler.md",
        "grows as the {:.2f}th to {:.2f}th power",
        "bench-planner",
        "growth/fifo, jobs 200 in 20 queues growth/envelope, jobs 1",
    ),
    (
        "docs/benchmarks/scheduler.md",
        "trials of 1 to 8 GPUs | {:.2f} s",
        "bench-planner",
        "slowest_tick_seconds",
    ),
    ("docs/benchmarks/scheduler.md", "any of them | | | {:.2f} s", "bench-planner", "slowest_fill_seconds"),
    *(
        (
            "docs/benchmarks/simulation.md",
            f"| `{policy}` | {{:.2f}} |",
            "bench-simulation",
            f"time_to_near_best_over_exact/{policy}",
        )
        for policy in ("envelope", "hermes", "slaq")
    ),
    (
        "docs/explanation/optimisers/online.md",
        "reallocation takes {:.2f} times the bound",
        "bench-theory-online",
        "lost_gpu/16,2/reallocated, longest first",
    ),
]


@cache
def result(page: str) -> Any:
    """Return the RESULT of a page."""
    lines = (RESULTS / f"{page}.md").read_text().splitlines()
    return json.loads(next(line for line in reversed(lines) if line.startswith("RESULT ")).removeprefix("RESULT "))


def figure(page: str, keys: str) -> float:
    value = result(page)
    for key in keys.split("/"):
        value = value[key]
    return float(value)


def paths(keys: str) -> list[str]:
    """Return the keys of each figure: they are separated by a blank, and a key may contain one after a comma."""
    return re.split(r"(?<!,) (?=\w+/)", keys)


def quoted(page: str, text: str) -> list[list[float]]:
    """Return the numbers at the `{:.Nf}` of `text`, for each place of the page that has this text."""
    prose = " ".join((ROOT / page).read_text().split())
    pattern = re.sub(r"\\{:\\.(\d)f\\}", r"(\\d+\\.\\d{\1})", re.escape(text))
    return [[float(number) for number in match.groups()] for match in re.finditer(pattern, prose)]


@pytest.mark.parametrize(("page", "text", "source", "keys"), QUOTED, ids=lambda value: str(value)[:60])
def test_a_quoted_figure_is_that_of_its_result_page(page: str, text: str, source: str, keys: str) -> None:
    """RESULT is rounded to three decimals, so the next digit of a quoted figure may differ."""
    measured = [figure(source, path) for path in paths(keys)]
    shown = [round(0.5 * 10 ** -int(digits) + 0.0006, 6) for digits in re.findall(r"\.(\d)f", text)]
    found = quoted(page, text)
    assert any(
        all(abs(number - value) <= most for number, value, most in zip(numbers, measured, shown, strict=True))
        for numbers in found
    ), f"{page} has {found} in {text!r}; {source}.md has {measured}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_section_of_figures_names_its_command(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title = section.splitlines()[0]
        if title not in WITHOUT_FIGURES:
            assert COMMAND.search(section), f"{page.name}: {title} names neither a command nor a result page"


@pytest.mark.parametrize("page", sorted(RESULTS.glob("*.md")), ids=lambda page: page.name)
def test_each_result_page_begins_with_its_command(page: Path) -> None:
    first = "\n".join(page.read_text().splitlines()[:12])
    assert re.search(r"`(?:make bench-|python -m benchmarks\.)", first)
