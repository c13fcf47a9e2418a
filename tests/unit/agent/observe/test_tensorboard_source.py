"""Event files in a trial's folder: several, growing, cut off, renewed after a restart, hostile, and named by series."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from agent_builders import FIRST_PID, Machine, pod
from descriptors import no_descriptors
from event_files import append, event

from podium_agent.observe.cgroups import Container
from podium_agent.observe.sources import volume_source
from podium_agent.observe.sources.volume_source import ContainerPlace, VolumeSource, event_source
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.sources.batch import Position
from podium_core.sources.due import due_every
from podium_core.sources.event_folder import MAX_FILES
from podium_core.sources.event_reader import names_of

TRAIN = "ab" * 32
NAME = "events.out.tfevents.{}.host.1.0"


class Trial:
    """A container with a folder, and the source that reads it."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.machine = Machine(folder)
        self.freezer = self.machine.run(pod(), TRAIN)
        self.folder = self.machine.root(TRAIN) / "logs"
        self.folder.mkdir()
        given = {"metric": "acc", "direction": "maximize", "container": "train", "source": "tensorboard"}
        self.metrics = MetricsConfig.model_validate(given | {"path": "/logs", "additional": ["val/loss"]} | more)
        self.source = self.open(Position())

    def open(self, position: Position) -> VolumeSource:
        place = ContainerPlace(
            self.machine.folder / "proc", lambda: Container(TRAIN, FIRST_PID, self.freezer), seconds=60.0
        )
        self.source = event_source(place, self.metrics, position)
        return self.source

    def read(self) -> list[tuple[float, dict[str, float]]]:
        """Return step and values of all events that are there now."""

        async def read() -> list[Any]:
            records: list[Any] = []
            while True:
                batch = await self.source.read(False)
                records += [json.loads(line.text) for line in batch.lines]
                self.position = batch.position
                if not batch.more:
                    return records

        return [(one["step"], one["values"]) for one in asyncio.run(read())]


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    monkeypatch.setattr(
        volume_source, "due_every", lambda _, clock: due_every(0.0, clock)
    )  # the folder is listed in each pass
    return Trial(tmp_path)


def test_several_files_that_grow(trial: Trial) -> None:
    assert trial.read() == []
    assert "no event file" in trial.source.explain()
    first = trial.folder / NAME.format(1)
    append(first, event(1, acc=0.5, other=9.0) + event(2, acc=0.625)[:-3])
    assert trial.read() == [(1, {"acc": 0.5})]
    append(first, event(2, acc=0.625)[-3:])
    append(trial.folder / "run" / NAME.format(2), event(3, val__loss=2.0))
    assert trial.read() == [(2, {"acc": 0.625}), (3, {"val/loss": 2.0})]
    assert trial.source.parse('{"step": 3.0, "values": {"val/loss": 2.0}}')[0].additional[0].value == 2.0
    assert trial.read() == []


def test_a_restarted_agent_and_a_new_attempt_continue(trial: Trial) -> None:
    append(trial.folder / NAME.format(1), event(1, acc=0.5))
    assert len(trial.read()) == 1
    append(trial.folder / NAME.format(1), event(2, acc=0.5))
    append(trial.folder / NAME.format(2), event(2, acc=0.75))
    trial.open(trial.position)
    assert [step for step, _ in trial.read()] == [2, 2]
    (trial.folder / NAME.format(1)).write_bytes(event(1, acc=0.25)[:40])  # written again, shorter
    trial.open(trial.position)
    assert trial.read() == []
    append(trial.folder / NAME.format(1), event(1, acc=0.25)[40:])
    assert trial.read() == [(1, {"acc": 0.25})]


def test_without_the_tag_the_tags_are_named(trial: Trial) -> None:
    append(trial.folder / NAME.format(1), event(1, **{f"metric{number}": 0.5 for number in range(40)}))
    assert trial.read() == []
    assert "no event has the tag acc; the tags are metric0, metric1, metric10" in trial.source.explain()
    assert "and 32 more" in trial.source.explain()


def test_the_number_of_tags_is_bounded(trial: Trial) -> None:
    for number in range(60):
        append(trial.folder / NAME.format(1), event(number, **{f"tag{number}x{one}": 1.0 for one in range(50)}))
    assert trial.read() == []
    assert len(trial.source.explain()) < 1000


def test_garbage_is_reported_and_read_again(trial: Trial) -> None:
    file = trial.folder / NAME.format(1)
    append(file, event(1, acc=0.5) + b"\0" * 100)
    assert trial.read() == [(1, {"acc": 0.5})]
    assert "is damaged" in trial.source.explain()
    file.write_bytes(event(1, acc=0.5) + event(2, acc=0.75))  # a network volume shows the bytes at last
    assert trial.read() == [(2, {"acc": 0.75})]


def test_links_and_pipes_are_left_out_and_files_are_bounded(trial: Trial, tmp_path: Path) -> None:
    outside = tmp_path / NAME.format(0)
    outside.write_bytes(event(9, acc=0.9))
    (trial.folder / NAME.format(0)).symlink_to(outside)
    os.mkfifo(trial.folder / NAME.format(5))
    (trial.folder / "loop").symlink_to(".")
    for number in range(MAX_FILES + 9):
        append(trial.folder / NAME.format(100 + number), event(number, acc=0.5))
        os.utime(trial.folder / NAME.format(100 + number), (number, number))
    assert [step for step, _ in trial.read()] == list(range(9, MAX_FILES + 9))
    assert len(trial.position.files) == MAX_FILES


@pytest.mark.parametrize(
    ("folder", "tag", "names"),
    [
        ("", "acc", ("acc",)),
        ("version_0", "acc", ("acc", "version_0/acc")),
        ("validation", "epoch_acc", ("validation/epoch_acc",)),
        ("loss_train", "loss", ("loss_train/loss",)),
    ],
)
def test_a_series_is_named_with_its_folder(folder: str, tag: str, names: tuple[str, ...]) -> None:
    assert names_of(folder, tag) == names


def test_closing_closes_every_descriptor(trial: Trial) -> None:
    before = len(os.listdir("/proc/self/fd"))
    append(trial.folder / NAME.format(1), event(1, acc=0.5))
    trial.read()
    trial.source.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("spare", range(6))
def test_without_descriptors_no_file_seems_deleted(trial: Trial, spare: int) -> None:
    file = trial.folder / "run" / NAME.format(1)
    append(file, event(1, acc=0.5))
    assert trial.read() == [(1, {"acc": 0.5})]

    async def starved() -> int:
        with no_descriptors(spare):
            return len((await trial.source.read(False)).lines)

    assert asyncio.run(starved()) == 0
    assert trial.source.fault is None or trial.source.fault.errno == errno.EMFILE
    assert spare or trial.source.fault is not None
    append(file, event(2, acc=0.625))
    assert trial.read() == [(2, {"acc": 0.625})]
    assert trial.source.fault is None
