"""Reader of a trial's log or metrics file: one line in, steps and values out.

The agent uses it for the logs and files on its node, and `podium validate --log` for a file. The operator uses it for
trials without a GPU, because they may run on a node without an agent. A line without the job's metrics yields nothing
and is never an error: logs hold anything. Additional metrics never change what is read of the objective.

Any line costs bounded time and memory (`budget`): text beyond a limit is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from podium_core.logs.budget import LineBudget
from podium_core.logs.csv_rows import CsvReader
from podium_core.logs.readings import AdditionalValue, MetricsFormat, ParsedLine, Reader
from podium_core.logs.records import Path, paths_of, records
from podium_core.logs.screen import pieces
from podium_core.logs.text_lines import default_reader, filter_reader

__all__ = ["AdditionalValue", "MetricsFormat", "ParsedLine", "Reader", "line_reader"]

_PieceReader = Callable[[str, LineBudget], list[ParsedLine]]


def line_reader(metrics: MetricsFormat) -> Reader:
    """Return the function that parses this trial's lines.

    Raises ValueError for a wrong filter here, once, instead of at every line. The reader of a CSV file takes its lines
    from the first one on.
    """
    if metrics.format == "csv":
        return CsvReader(metrics)
    read = _text_pieces(metrics) if metrics.format == "text" else _record_pieces(metrics)
    names = (metrics.metric, metrics.step_key, *metrics.additional)
    hints = tuple({name.rpartition(".")[2].lower() for name in names})
    ascii_only = all(hint.isascii() for hint in hints) and metrics.filter is None

    def parse(line: str) -> list[ParsedLine]:
        lowered = line.lower() if ascii_only else ""
        if ascii_only and not any(hint in lowered for hint in hints):
            return []  # most lines hold none of the names
        budget = LineBudget()
        return _latest([read(piece, budget) for piece in pieces(line)])

    return parse


def _latest(by_piece: Sequence[list[ParsedLine]]) -> list[ParsedLine]:
    """Return what remains of a line that was rewritten: for each step, and without a step, the last report.

    A progress bar shows a value many times. The order is that of the first report of each step.
    """
    if len(by_piece) <= 1:
        return by_piece[0] if by_piece else []
    latest: dict[tuple[float | None, bool], list[ParsedLine]] = {}
    for parsed in by_piece:
        fresh: dict[tuple[float | None, bool], list[ParsedLine]] = {}
        for one in parsed:
            fresh.setdefault((one.step, one.value is None), []).append(one)
        for key, ones in fresh.items():
            latest[key] = ones
    return [one for ones in latest.values() for one in ones]


def _record_pieces(metrics: MetricsFormat) -> _PieceReader:
    named = {name: paths_of(name) for name in (metrics.metric, metrics.step_key, *metrics.additional)}
    wanted = {path: name == metrics.step_key for name, paths in named.items() for path in paths}

    def first(record: Mapping[Path, float], name: str) -> float | None:
        return next((record[path] for path in named[name] if path in record), None)

    def read(piece: str, budget: LineBudget) -> list[ParsedLine]:
        parsed = []
        for record in records(piece, wanted, budget):
            step, value = first(record, metrics.step_key), first(record, metrics.metric)
            additional = tuple(
                AdditionalValue(name, step, number)
                for name in metrics.additional
                if (number := first(record, name)) is not None
            )
            if value is not None:
                parsed.append(ParsedLine(step, value, additional))
            elif additional:
                # The step announces no value of the objective: records are complete, a later one has its own step.
                parsed.append(ParsedLine(None, None, additional))
        return parsed

    return read


def _text_pieces(metrics: MetricsFormat) -> _PieceReader:
    wanted = dict.fromkeys((metrics.metric, *metrics.additional), False) | {metrics.step_key: True}
    if metrics.filter is None:
        values_of = default_reader(wanted, metrics.step_key)
    else:
        values_of = filter_reader(metrics.filter, wanted, metrics.step_key)

    def read(piece: str, budget: LineBudget) -> list[ParsedLine]:
        values = values_of(piece, budget)
        if not values:
            return []
        step = values.get(metrics.step_key)
        additional = tuple(AdditionalValue(name, step, values[name]) for name in metrics.additional if name in values)
        return [ParsedLine(step, values.get(metrics.metric), additional)]

    return read
