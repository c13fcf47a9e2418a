"""`podium export` read by the tools themselves, where they are installed: TensorBoard, MLflow, pyarrow and W&B.

TensorBoard is a package of development. The others are not: install `mlflow-skinny`, `pyarrow` and `wandb` beside it to
run their tests.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from export_folders import HOSTILE, hostile_search, saved, trials_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podium_cli import main
from podium_cli.exit_codes import Exit
from podium_cli.exports.formats import open_target
from podium_cli.exports.sources import deliver_curves
from podium_cli.samples import search_at
from podium_core.curves.non_finite import diverged, to_wire
from podium_simulator.traces.csv_tables import read_table
from podium_simulator.traces.trace import RecordedTrial, Trace

SCALARS = st.one_of(
    st.booleans(),
    st.floats(),
    st.integers(-(10**420), 10**420),
    st.text(max_size=20),
)
TEXTS = st.text(st.characters(codec=None), min_size=1, max_size=12).filter(lambda text: text == text.strip())


@st.composite
def curves(draw: st.DrawFn) -> RecordedTrial:
    steps = sorted(draw(st.sets(st.integers(0, 1 << 40), min_size=1, max_size=12)))
    values = draw(st.lists(st.floats(), min_size=len(steps), max_size=len(steps)))
    seconds = accumulate(draw(st.lists(st.floats(0.01, 1e4), min_size=len(steps), max_size=len(steps))))
    return RecordedTrial(
        draw(TEXTS),
        MappingProxyType(draw(st.dictionaries(TEXTS, SCALARS, max_size=3))),
        tuple(seconds),
        tuple(to_wire(value, maximize=False) for value in values),
        tuple(map(float, steps)),
    )


TRACES = st.builds(
    lambda trials, metric: Trace("task", "task", metric, False, None, tuple(trials)),
    st.lists(curves(), min_size=1, max_size=3, unique_by=lambda trial: trial.name),
    TEXTS,
)
EACH = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def written(trace: Trace, form: str, path: Path) -> Path:
    """Write a trace in this format to a new place below `path`."""
    place = path / f"{form}-{len(list(path.iterdir()))}{'.csv' if form == 'csv' else ''}"

    def begin(search: Any) -> Any:
        nonlocal target
        target, _ = open_target(form, place, search, force=False)
        return target.add

    target: Any = None
    deliver_curves(trace, begin)
    target.close()
    return place


def finite(trial: RecordedTrial) -> list[tuple[float, float]]:
    """Return the points of a trial; NaN where the value was not finite."""
    points = zip(trial.steps, trial.values, strict=True)
    return [(step, math.nan if diverged(value) else value) for step, value in points]


def same(found: list[tuple[float, float]], wanted: list[tuple[float, float]]) -> bool:
    return len(found) == len(wanted) and all(
        a == c and (b == d or (math.isnan(b) and math.isnan(d))) for (a, b), (c, d) in zip(found, wanted, strict=True)
    )


def single(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


@EACH
@given(trace=TRACES)
def test_csv_round_trip(trace: Trace, tmp_path: Path) -> None:
    path = written(trace, "csv", tmp_path)
    found = {trial.name: trial for trial in read_table(path, maximize=False).trials}
    assert len(found) == len(trace.trials)
    for trial, read in zip(trace.trials, found.values(), strict=True):
        assert same(finite(read), finite(trial))
        assert read.steps == trial.steps
        assert read.seconds == trial.seconds


@EACH
@given(trace=TRACES)
def test_tensorboard_round_trip(trace: Trace, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    path = written(trace, "tensorboard", tmp_path)
    runs = [run for run in path.iterdir() if run.is_dir()]
    assert len(runs) == len(trace.trials)
    found = []
    for run in runs:
        read = accumulator.EventAccumulator(str(run), size_guidance={"scalars": 0})
        read.Reload()
        (tag,) = read.Tags()["scalars"]
        found.append([(float(event.step), event.value) for event in read.Scalars(tag)])
        assert set(read.SummaryMetadata("_hparams_/session_start_info").plugin_data.plugin_name) == set("hparams")
    for trial in trace.trials:
        wanted = [(step, single(value)) for step, value in finite(trial)]
        assert any(same(one, wanted) for one in found)


def test_the_hparams_page_of_tensorboard_lists_the_trials(tmp_path: Path) -> None:
    """The plugin's own answer to its page: sessions with parameters, status and the last value."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

    objects = search_at(600.0)
    trials_of(objects)[1]["status"]["phase"] = "Failed"
    folder = saved(tmp_path / "saved", objects)
    assert (
        main.run(["export", "--from-files", str(folder), "-f", "tensorboard", "-o", str(tmp_path / "out")]) is Exit.OK
    )
    multiplexer = plugin_event_multiplexer.EventMultiplexer().AddRunsFromDirectory(str(tmp_path / "out"))
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(tmp_path / "out"))
    context = backend_context.Context(base_plugin.TBContext(data_provider=provider))
    request = RequestContext()
    metadata = context.hparams_metadata(request, "x")
    experiment = context.experiment_from_metadata(
        request, "x", True, metadata, provider.list_hyperparameters(request, experiment_ids=["x"])
    )
    assert {one.name for one in experiment.hparam_infos} == {"lr", "width", "batch", "activation"}
    asked = api_pb2.ListSessionGroupsRequest(
        start_index=0,
        slice_size=100,
        allowed_statuses=[api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE],
        col_params=[
            api_pb2.ColParams(metric=api_pb2.MetricName(tag=info.name.tag, group=info.name.group))
            for info in experiment.metric_infos
        ],
    )
    groups = list_session_groups.Handler(request, context, "x", asked).run().session_groups
    assert len(groups) == 12
    by_name = {group.sessions[0].name: group for group in groups}
    first = next(trial for trial in trials_of(objects) if trial["metadata"]["name"] == "digits-3")
    assert by_name["digits-3"].hparams["lr"].number_value == first["spec"]["parameters"]["lr"]
    (value,) = by_name["digits-3"].metric_values
    assert value.value == pytest.approx(first["status"]["curve"]["points"][-1]["value"])
    assert by_name["digits-1"].sessions[0].status == api_pb2.STATUS_FAILURE


@pytest.fixture
def mlflow_client(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    tracking = pytest.importorskip("mlflow.tracking", reason="mlflow-skinny is not installed")
    return lambda path: tracking.MlflowClient(path.as_uri())


@pytest.mark.filterwarnings("default")
def test_mlflow_opens_the_store(mlflow_client: Any, tmp_path: Path) -> None:
    objects = search_at(90.0)
    folder = saved(tmp_path / "saved", objects)
    for _ in range(2):
        arguments = ["--from-files", str(folder), "-f", "mlflow", "-o", str(tmp_path / "out")]
        assert main.run(["export", *arguments]) is Exit.OK
    client = mlflow_client(tmp_path / "out")
    (experiment,) = client.search_experiments()
    assert experiment.name == "digits"
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    for trial in trials_of(objects):
        run, points = runs.pop(trial["metadata"]["name"]), trial["status"]["curve"]["points"]
        history = client.get_metric_history(run.info.run_id, "val_acc")
        assert [(one.step, one.value) for one in history] == [(point["step"], point["value"]) for point in points]
        assert run.data.params == {name: str(value) for name, value in trial["spec"]["parameters"].items()}
        assert run.data.tags["podium.phase"] == trial["status"]["phase"]
        assert (run.info.status == "FINISHED") is (trial["status"]["phase"] == "Succeeded")
    assert runs == {}


@pytest.mark.filterwarnings("default")
def test_mlflow_opens_a_hostile_search(mlflow_client: Any, tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved", hostile_search())
    assert main.run(["export", "--from-files", str(folder), "-f", "mlflow", "-o", str(tmp_path / "out")]) is Exit.OK
    client = mlflow_client(tmp_path / "out")
    runs = client.search_runs([one.experiment_id for one in client.search_experiments()])
    assert len(runs) == 12
    run = next(run for run in runs if run.info.run_name.startswith("../../x\\n"))
    assert run.data.params["width"] == "9" * 400
    (metric,) = run.data.metrics
    assert math.isnan(client.get_metric_history(run.info.run_id, metric)[3].value)


@EACH
@given(trace=TRACES)
@pytest.mark.filterwarnings("default")
def test_mlflow_round_trip(trace: Trace, mlflow_client: Any, tmp_path: Path) -> None:
    client = mlflow_client(written(trace, "mlflow", tmp_path))
    runs = client.search_runs([one.experiment_id for one in client.search_experiments()])
    found = []
    for run in runs:
        (metric,) = run.data.metrics
        found.append([(float(one.step), one.value) for one in client.get_metric_history(run.info.run_id, metric)])
    assert len(found) == len(trace.trials)
    for trial in trace.trials:
        assert any(same(one, finite(trial)) for one in found)


@EACH
@given(trace=TRACES)
def test_parquet_round_trip(trace: Trace, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    rows = parquet.read_table(written(trace, "parquet", tmp_path)).to_pylist()
    for number, trial in enumerate(trace.trials):
        mine = [row for row in rows if row["number"] == number]
        assert same([(row["step"], row["value"]) for row in mine], finite(trial))
        assert [row["seconds"] for row in mine] == list(trial.seconds)


def test_parquet_has_typed_columns(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    path = tmp_path / "out.parquet"
    assert main.run(["export", "--sample", "-f", "parquet", "-o", str(path)]) is Exit.OK
    schema = parquet.read_schema(path)
    kinds = {name: str(schema.field(name).type) for name in schema.names}
    assert kinds["params.lr"] == "double"
    assert kinds["params.width"] == "int64"
    assert kinds["params.activation"] == "string"
    assert kinds["time"] == "timestamp[us, tz=UTC]"
    objects = hostile_search()
    folder = saved(tmp_path / "saved", objects)
    arguments = ["export", "--from-files", str(folder), "-f", "parquet", "-o", str(tmp_path / "hostile.parquet")]
    assert main.run(arguments) is Exit.FAILED  # 400 digits do not fit into a whole number of 64 bits
    assert not list(tmp_path.glob("*hostile*"))


def wandb_records(path: Path) -> Iterator[Any]:
    """Yield the records of an offline run, decoded by W&B's own messages: LevelDB's log format, 32 KiB blocks."""
    from wandb.proto import wandb_internal_pb2

    data = path.read_bytes()
    assert data[:4] == b":W&B"
    at, record = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        checksum, length, kind = struct.unpack_from("<IHB", data, at)
        part = data[at + 7 : at + 7 + length]
        assert zlib.crc32(bytes([kind]) + part) == checksum
        record, at = record + part, at + 7 + length
        if kind in (1, 4):
            yield wandb_internal_pb2.Record.FromString(record)
            record = b""


def wandb_run(path: Path) -> tuple[Any, list[dict[str, Any]]]:
    """Return the run and its history."""
    records = list(wandb_records(path))
    (run,) = [one.run for one in records if one.WhichOneof("record_type") == "run"]
    history = [one.history for one in records if one.WhichOneof("record_type") == "history"]
    rows = [
        {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in one.item} for one in history
    ]
    return run, rows


@pytest.mark.filterwarnings("default")
def test_wandb_writes_offline_runs(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    objects = hostile_search()
    out = tmp_path / "out"
    earlier = saved(tmp_path / "earlier", search_at(40.0))
    assert main.run(["export", "--from-files", str(earlier), "-f", "wandb", "-o", str(out)]) is Exit.OK
    final = saved(tmp_path / "final", search_at(600.0))
    for _ in range(2):
        assert main.run(["export", "--from-files", str(final), "-f", "wandb", "-o", str(out)]) is Exit.OK
        files = {path: path.stat().st_mtime_ns for path in out.glob("wandb/offline-run-*/*.wandb")}
    assert {path: path.stat().st_mtime_ns for path in out.glob("wandb/offline-run-*/*.wandb")} == files
    found = {run.display_name: (run, rows) for run, rows in map(wandb_run, files)}
    assert len(files) == len(found) == 12
    for trial in trials_of(search_at(600.0)):
        run, rows = found[trial["metadata"]["name"]]
        points = trial["status"]["curve"]["points"]
        assert [(row["_step"], row["val_acc"]) for row in rows] == [(one["step"], one["value"]) for one in points]
        assert rows[0]["_timestamp"] == pytest.approx(points[0]["time"])
        config = {item.key: json.loads(item.value_json) for item in run.config.update}
        assert {name: config[name] for name in trial["spec"]["parameters"]} == trial["spec"]["parameters"]
    hostile = saved(tmp_path / "hostile", objects)
    assert main.run(["export", "--from-files", str(hostile), "-f", "wandb", "-o", str(tmp_path / "h")]) is Exit.OK
    names = {wandb_run(path)[0].display_name for path in (tmp_path / "h").glob("wandb/offline-run-*/*.wandb")}
    assert len(names) == 12
    assert all(name.isprintable() for name in names)
    assert any(name.startswith(HOSTILE[:7]) for name in names)
