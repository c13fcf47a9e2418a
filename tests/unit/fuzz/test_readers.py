"""Fuzz targets of everything that reads what others write: a result, or the reader's own error in one line.

`make fuzz` runs 100,000 cases of each (`tools/fuzz.py`). The short form runs 200.
"""

from __future__ import annotations

import contextlib
import copy
import gzip
import math
import struct
from pathlib import Path
from typing import Any

import pytest
from fuzzing import fuzz, outcome, places, scratch
from hypothesis import strategies as st

from podium_core.acceptance.findings import findings
from podium_core.conversion.convert import convert
from podium_core.conversion.fields import MAX_PROBLEMS
from podium_core.conversion.given import Given
from podium_core.logs.filters import filter_error
from podium_core.logs.line_reader import line_reader
from podium_core.schema.job import Direction
from podium_core.schema.manifests import ManifestError, dump_manifests, parse_manifests, read_manifests
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.schema.quantity import to_thousandths
from podium_core.tables.text_file import TextFileError, text_lines
from podium_optimisers.engine.traces import read_philly_trace
from podium_optimisers.engine.workload import WorkloadError
from podium_optimisers.makespan.instance import MakespanError
from podium_optimisers.makespan.tasks_csv import read_tasks
from podium_optimisers.queueing.trace import read_trace
from podium_optimisers.validation import InputError
from podium_simulator.traces.csv_tables import read_table
from podium_simulator.traces.event_files import read_events
from podium_simulator.traces.trace import Trace, TraceError, parse

MAX_REPORTS = 600  # of one line: records, matches and pieces are counted (`logs.budget`)


def made_of(*words: str, longest: int = 30) -> st.SearchStrategy[str]:
    """Return texts made of these words and of any others."""
    return st.lists(st.sampled_from(words) | st.text(max_size=4), max_size=longest).map("".join)


NUMBERS = ("0.5", "1,5", "1,234.5", "nan", "inf", "-1e-3", "1e999", "0x1", "50%", "1.2k", "1_0", "٣", "9" * 400)
LINES = made_of(
    *(
        "acc",
        "epoch",
        "step",
        "=",
        ":",
        " ",
        "\t",
        ",",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        '"',
        "'",
        "\\",
        "\r",
        "\x1b[3",
        "m",
    ),
    *("tensor(", "np.float64(", "best ", "null", "\0", "\x08", "\ufffd", *NUMBERS),
)


def config(form: str, pattern: str | None = None) -> MetricsConfig:
    return MetricsConfig.model_construct(
        metric="acc", direction=Direction.MAXIMIZE, step_key="epoch", format=form, filter=pattern, additional=("loss",)
    )


@fuzz(form=st.sampled_from(["json", "huggingface", "text"]), line=LINES)
def test_log_lines(form: str, line: str) -> None:
    read = line_reader(config(form))(line)
    assert len(read) <= MAX_REPORTS
    assert all(isinstance(number, float) for one in read for number in (one.step, one.value) if number is not None)


PATTERNS = made_of(
    *(
        "(?P<name>",
        "(?P<value>",
        ")",
        "(",
        r"\w+",
        r"[\d.]+",
        "acc",
        "=",
        ".*",
        "|",
        "+",
        "*",
        "?",
        "[^",
        "]",
        "\\",
        "{9}",
    ),
    *("{1,999}", "(?i)", "(?:", "(?=", r"\1", "^", "$", r"\b"),
    longest=12,
)


@fuzz(
    pattern=PATTERNS | PATTERNS.map(lambda text: f"(?P<name>acc){text}(?P<value>[0-9.]+)"),
    line=LINES,
    more=st.booleans(),
)
def test_filters(pattern: str, line: str, more: bool) -> None:
    wrong = filter_error(pattern)
    if wrong is None:
        assert len(line_reader(config("text", pattern))(line * (50 if more else 1))) <= MAX_REPORTS
    else:
        with pytest.raises(ValueError, match=r"metrics\.filter"):
            line_reader(config("text", pattern))


def sound(trace: Trace | None) -> None:
    for trial in () if trace is None else trace.trials:
        assert len(trial.seconds) == len(trial.values) == len(trial.steps or trial.values) > 0
        assert all(map(math.isfinite, (*trial.seconds, *trial.values, *trial.steps)))
        assert all(after > before for before, after in zip(trial.seconds, trial.seconds[1:], strict=False))


FIELD = st.sampled_from(("", "a", "b", "1", "2", "10", '"', "NA", "; ", *NUMBERS)) | st.text(max_size=5)
ROW = st.lists(FIELD, min_size=1, max_size=7)


@st.composite
def tables(draw: st.DrawFn, *columns: str) -> bytes:
    """Return the bytes of a table: mostly of these columns, with any separator, line end and encoding."""
    separator = draw(st.sampled_from([",", ";", "\t", ", "]))
    header = draw(st.permutations(columns).map(list) | ROW)
    good = st.tuples(*(st.sampled_from(("a", "1", "2", "0.5", "10", "20", "2026-01-31 12:00:00")) for _ in header)).map(
        list
    )
    rows = draw(st.lists(good | ROW, max_size=8))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    text = end.join(separator.join(row) for row in [header, *rows])
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le"]))
    content = text.encode(encoding, errors="replace")
    if draw(st.integers(0, 9)) == 0:
        content = gzip.compress(content, 1)
    cut = draw(st.none() | st.integers(0, len(content)))
    return content if cut is None else content[:cut] + draw(st.binary(max_size=3)) + content[cut:]


def written(content: bytes) -> Path:
    """Return a file with this content."""
    file = scratch() / "x.csv"
    file.write_bytes(content)
    return file


@fuzz(content=tables("trial", "step", "value", "seconds", "lr"))
def test_tables_of_curves(content: bytes) -> None:
    file = written(content)
    said: list[str] = []
    sound(outcome(lambda: read_table(file, True, said.append), TraceError))
    assert all("\n" not in text for text in said)


@fuzz(content=tables("arrival", "duration", "gpus"))
def test_tables_of_jobs(content: bytes) -> None:
    file = written(content)
    trace = outcome(lambda: read_trace(text_lines(file)), InputError, TextFileError)
    assert trace is None or (trace.arrivals[0] == 0.0 and trace.span > 0.0 and (trace.services >= 0.0).all())


@fuzz(content=tables("timestamp", "duration", "num_gpus", "cluster"))
def test_traces_of_philly(content: bytes) -> None:
    file = written(content)
    workload = outcome(lambda: read_philly_trace(file), WorkloadError)
    assert workload is None or (workload.arrival >= 0.0).all()


@fuzz(content=tables("name", "cpu", "gpu"))
def test_tables_of_tasks(content: bytes) -> None:
    file = written(content)
    instance = outcome(lambda: read_tasks("".join(text_lines(file)), 2, 1), MakespanError, TextFileError)
    assert instance is None or len(instance.names) > 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.sampled_from(NUMBERS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@fuzz(
    st.fixed_dictionaries(
        {},
        optional={
            "trial": st.just("a") | JSON,
            "seconds": st.just([1, 2]) | JSON,
            "value": st.just([0.5, None]) | JSON,
            "step": st.just([1, 2]) | JSON,
            "hparams": st.just({"lr": 0.1}) | JSON,
            "observations": JSON,
        },
    ),
    st.integers(0, 400),
)
def test_lines_of_json(record: dict[str, Any], cut: int) -> None:
    import json

    header = '{"task": "t", "metric": "m", "goal": "maximize"}\n'
    line = json.dumps(record)
    for text in (line, line[:cut]):
        sound(outcome(lambda text=text: parse([header, text], "x.jsonl"), TraceError))  # type: ignore[misc]
    outcome(lambda: parse([line, line], "x.jsonl"), TraceError)


def event(step: int, wall: float, value: float) -> bytes:
    """Return an Event in protobuf's wire format: wall_time, step, and a scalar `acc`."""
    scalar = b"\n\x03acc" + b"\x15" + struct.pack("<f", value)
    summary = b"\n" + bytes([len(scalar)]) + scalar
    count = bytes([step & 0x7F])
    return b"\x09" + struct.pack("<d", wall) + b"\x10" + count + b"\x2a" + bytes([len(summary)]) + summary


@fuzz(
    st.lists(
        st.tuples(
            st.integers(0, 127), st.sampled_from([0.0, 1e9, 1e9 + 1, 1e9 + 2, math.nan, 1e300]), st.floats(width=32)
        )
        | st.binary(max_size=40),
        max_size=6,
    ),
    st.none() | st.tuples(st.integers(0, 300), st.binary(max_size=3)),
)
def test_event_files(events: list[tuple[int, float, float] | bytes], damage: tuple[int, bytes] | None) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    content = b""
    for one in events:
        data = one if isinstance(one, bytes) else event(*one)
        length = struct.pack("<Q", len(data))
        content += length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))
    if damage is not None:
        content = content[: damage[0]] + damage[1] + content[damage[0] + len(damage[1]) :]
    runs = scratch() / "runs"
    (runs / "run").mkdir(parents=True, exist_ok=True)
    (runs / "run" / "events.out.tfevents.1.host").write_bytes(content)
    said: list[str] = []
    sound(outcome(lambda: read_events(runs, "acc", True, said.append), TraceError))
    assert all("\n" not in text for text in said)


@fuzz(made_of("1", "0", ".", "e", "E", "+", "-", "m", "k", "M", "Ki", "Gi", "n", "u", "9" * 40, longest=6))
def test_quantities(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert to_thousandths(text) >= 0


GOOD: dict[str, Any] = {
    "apiVersion": "podium.dev/v1alpha1",
    "kind": "HyperParamJob",
    "metadata": {"name": "good", "namespace": "default"},
    "spec": {
        "objective": {"metric": "acc", "direction": "maximize", "target": 0.9, "additionalMetrics": ["loss"]},
        "parameters": [{"name": "lr", "min": 1e-4, "max": 1e-1, "scale": "log"}, {"name": "n", "values": [1, 2]}],
        "trials": {"max": 4, "maxSteps": 10},
        "metrics": {"format": "text", "filter": "(?P<name>acc)=(?P<value>[0-9.]+)"},
        "gpus": {"perTrial": 1, "memory": "1Gi"},
        "suspension": {"methods": ["freeze"]},
        "checkpoint": {"path": "/c", "volume": {"claimName": "runs"}, "resumeArgs": ["--from=$(podium.checkpoint)"]},
        "search": {"algorithm": "random", "settings": {}},
        "policy": {"name": "envelope", "settings": {}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "containers": [
                    {
                        "name": "train",
                        "image": "x:1",
                        "args": ["$(podium.args)", "{{lr}}"],
                        "env": [{"name": "A", "value": "${lr}"}],
                        "envFrom": [{"prefix": "P"}],
                        "resources": {"limits": {"cpu": 1}, "claims": []},
                        "securityContext": {"privileged": False},
                        "volumeMounts": [{"mountPath": "/x", "name": "v"}],
                    }
                ],
                "volumes": [{"name": "v", "hostPath": {"path": "/data"}}],
            },
        },
    },
}


HUGE = 10**400
ODD = JSON | st.sampled_from(
    [
        *(
            1.7e308,
            -1.7e308,
            5e-324,
            2**60,
            2**63,
            HUGE,
            "",
            "grid",
            "tpe",
            "pbt",
            "asha",
            "log",
            "int",
            "a\0b",
            "\ud800",
        ),
        *(
            "${trialParameters.lr}",
            [],
            [HUGE],
            {"eta": HUGE},
            {"interval": HUGE},
            {"name": "asha", "settings": {"eta": HUGE}},
        ),
        {"algorithm": "pbt", "settings": {"interval": HUGE}},
        {"algorithm": "tpe", "initialTrials": [{"lr": HUGE}], "warmStart": {"results": [{"value": HUGE}]}},
        {"\ud800": "\udfff"},
    ]
)


@fuzz(st.lists(st.tuples(st.sampled_from(places(GOOD)[1:]), ODD), min_size=1, max_size=3), st.booleans())
def test_jobs(changes: list[tuple[tuple[Any, ...], Any]], reserved: bool) -> None:
    job = copy.deepcopy(GOOD)
    for (*parents, last), value in changes:
        node: Any = job
        with contextlib.suppress(KeyError, IndexError, TypeError):  # an earlier change removed the place
            for part in parents:
                node = node[part]
            node[last] = copy.deepcopy(value)
    found = findings(job, reserved_gpus=reserved)
    assert all(one.code and one.message and one.severity in ("error", "warning") for one in found)
    assert len({one.severity for one in found}) <= 1
    "".join(f"{one.field}{one.message}" for one in found).encode()


@fuzz(
    made_of(
        "a: ",
        "- ",
        "\n",
        "  ",
        "{",
        "}",
        "[",
        "]",
        "&x ",
        "*x",
        "!!int ",
        "1e-4",
        '"',
        "'",
        "---\n",
        "<<: ",
        "|\n",
        "? ",
    )
)
def test_manifests(text: str) -> None:
    with contextlib.suppress(ManifestError):
        assert all(isinstance(one, dict) for one in parse_manifests(text))


CONVERSION = Path(__file__).parents[1] / "conversion"
REFERENCES = read_manifests([CONVERSION / "trial-templates.yaml", CONVERSION / "kubeflow" / "runtime.yaml"])
SEARCHES = [
    manifest
    for path in sorted(CONVERSION.glob("*/*.yaml"))
    for manifest in read_manifests([path])
    if manifest.get("kind") != "ClusterTrainingRuntime"
]
FOREIGN = ODD | st.sampled_from(
    [None, "0", "-1", "1e308", "0x1", "hyperband", "pbt", "PyTorchJob", "MPIJob", "TrainJob", "q_log_normal", "${args}"]
)


@fuzz(st.data())
def test_searches_of_other_tools(data: st.DataObject) -> None:
    search = copy.deepcopy(data.draw(st.sampled_from(SEARCHES)))
    for _ in range(data.draw(st.integers(0, 3))):
        *parents, last = data.draw(st.sampled_from(places(search)[1:] or [("kind",)]))
        node: Any = search
        for part in parents:
            node = node[part]
        if data.draw(st.booleans()):
            node[last] = copy.deepcopy(data.draw(FOREIGN))
        elif isinstance(node, dict):
            name = data.draw(st.sampled_from(["extra", "value", "runPolicy", "configMap"]))
            node[name] = copy.deepcopy(data.draw(FOREIGN))
    before = copy.deepcopy(search)
    steps = data.draw(st.none() | st.sampled_from([1, 0.5, 1e300]))
    for result in convert([search, *REFERENCES], Given(image="i:1", max_steps=steps)):
        assert (result.job is None) == bool(result.refusals)
        assert len(result.refusals) <= MAX_PROBLEMS
        assert len(result.notes) <= MAX_PROBLEMS
        assert all(one.code and one.message.isprintable() for one in result.refusals)
        if result.job is not None:
            (read,) = parse_manifests(dump_manifests([result.job]))
            assert read["metadata"] == result.job["metadata"]
    assert search == before  # the input is not changed
