"""What one hostile line of a trial's log costs its reader: CPU time and memory, for each format and for users' filters.

    make bench-log-lines [OUT=FOLDER]
    python -m benchmarks.agent.bench_log_lines [--rounds 5]

Each line has 1 MiB and is made to be expensive for one kind of reader. The time is the process's CPU time, the least of
`--rounds`; the memory is the peak of Python's allocations while the line is read. Limits: 20 ms and 10 MB. The rival
is what a reader could do without limits: `json.loads` of the text between the first and the last brace.

Writes bench-log-lines.md into `--out`; the last line is RESULT {json}. The status is 1 if a limit is exceeded.
"""

from __future__ import annotations

import json
import random
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.command_line import Parser
from benchmarks.inputs import positive
from benchmarks.output import add_out, command, machine, result_line, write_page
from podium_core.logs.line_reader import Reader, line_reader
from podium_core.schema.metrics.config import MetricsConfig

SIZE = 1 << 20
MAX_MS, MAX_MB = 20.0, 10.0
FILTERS = (
    r"(?P<name>(a|aa)+)=(?P<value>[0-9.]+)",
    r"(?P<name>(?:\w+\s?)+):\s*(?P<value>[\d.]+)",
    r"(?P<name>[ab]*a[ab]{12})=(?P<value>1)",
    r"(?P<name>.*)(?P<value>.*)",
    r"(?P<name>a?)(?P<value>(.*z)?)",
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one line: milliseconds of CPU time, megabytes at the peak."""

    reader: str
    line: str
    ms: float
    mb: float


def lines() -> dict[str, str]:
    """Return the hostile lines by name."""
    drawn = random.Random(1)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    patterns = {
        "dots": ".",
        "names": "acc=",
        "pairs": "acc=1 ",
        "rewritten records": '{"acc":0.5,"epoch":3}\r',
        "rewritten text": "acc=0.5 epoch=1\r",
        "records": '{"epoch":1,"acc":0.5}',
        "empty records": "{}acc",
        "open braces": "{",
        "nested": '{"acc":',
        "open call": "{'acc': tensor(",
        "texts": "{'acc' ",
        "escapes": "\x1b[0m",
        "open escapes": "\x1b[",
        "emoji": "\U0001f600",
    }
    made = {name: pattern * (SIZE // len(pattern.encode())) + "acc" for name, pattern in patterns.items()}
    made["base64"] = "acc" + "".join(drawn.choices(letters, k=SIZE))
    made["a and b"] = "acc=" + "".join(drawn.choices("ab", k=SIZE))
    made["empty lists"] = '{"acc":[' + "[]," * (SIZE // 3)
    made["many keys"] = "{" + ",".join(f'"k{number}":{number}' for number in range(SIZE // 14)) + ',"acc":1}'
    made["open text"] = '{"acc":"' + "\\'" * (SIZE // 2)
    made["digits"] = '{"acc":' + "1" * SIZE + "}"
    return made


def readers() -> dict[str, Reader]:
    """Return the readers by name: each format, and each filter."""
    settings = {"metric": "acc", "direction": "maximize", "stepKey": "epoch", "container": "train"}
    formats = {form: {"format": form, "additional": ["loss", "f1"]} for form in ("json", "huggingface", "text")}
    filters = {f"`{pattern}`": {"format": "text", "filter": pattern} for pattern in FILTERS}
    return {
        name: line_reader(MetricsConfig.model_validate(settings | more)) for name, more in (formats | filters).items()
    }


def cost(name: str, line: str, read: Callable[[str], object], text: str, rounds: int) -> Cost:
    """Measure one reader on one line."""
    seconds = []
    for _ in range(rounds):
        begin = time.process_time()
        read(text)
        seconds.append(time.process_time() - begin)
    tracemalloc.start()
    read(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return Cost(name, line, min(seconds) * 1e3, peak / 1e6)


def unbounded(text: str) -> object:
    """Parse what is between the braces, without any limit."""
    try:
        return json.loads(text[text.find("{") : text.rfind("}") + 1])
    except (ValueError, RecursionError):
        return None


def main() -> int:
    parser = Parser(__doc__)
    parser.add_argument("--rounds", type=positive, default=5, help="repetitions of each line (default: 5)")
    add_out(parser)
    options = parser.parse_args()
    hostile = lines()
    worst = []
    for name, read in readers().items():
        costs = [cost(name, line, read, text, options.rounds) for line, text in hostile.items()]
        worst.append((max(costs, key=lambda one: one.ms), max(costs, key=lambda one: one.mb)))
        print(f"{name}: at most {worst[-1][0].ms:.1f} ms, {worst[-1][1].mb:.1f} MB", flush=True)
    lists = '{"acc":[' + ",".join(["[]"] * (SIZE // 3)) + "]}"
    rival = cost("json.loads", "empty lists", unbounded, lists, options.rounds)
    rows = [f"| {s.reader} | {s.ms:.1f} ms ({s.line}) | {m.mb:.1f} MB ({m.line}) |" for s, m in worst]
    rows.append(f"| `json.loads` without limits | {rival.ms:.1f} ms ({rival.line}) | {rival.mb:.1f} MB |")
    ms, mb = max(one.ms for one, _ in worst), max(one.mb for _, one in worst)
    result = {
        "bench": "log_lines",
        "cpu_ms": round(ms, 1),
        "memory_mb": round(mb, 1),
        "cpu_of_limit": round(ms / MAX_MS, 2),
        "memory_of_limit": round(mb / MAX_MB, 2),
    }
    text = [
        "# Hostile log lines\n",
        f"`{command()}` on {machine()}. {len(hostile)} lines of 1 MiB; the worst of them for each reader.",
        f"Limits: {MAX_MS:g} ms of CPU time and {MAX_MB:g} MB.\n",
        "| reader | CPU time | memory |",
        "| --- | --- | --- |",
        *rows,
        f"\n{result_line(result)}",
    ]
    write_page(options.out / "bench-log-lines.md", "\n".join(text) + "\n")
    print(result_line(result))
    return 0 if ms <= MAX_MS and mb <= MAX_MB else 1


if __name__ == "__main__":
    sys.exit(main())
