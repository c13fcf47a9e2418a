"""Lineage of a population in the report and in the table of trials."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from io import StringIO
from typing import Any

from rich.console import Console

from podium_cli.commands.get import trials_table
from podium_cli.report import page
from podium_views import lineage
from podium_views.job_snapshot import JobSnapshot
from podium_views.model import build

Snapshot = Callable[..., JobSnapshot]
EVIL = '"><script>'


def child(parent: str, generation: int, step: float) -> dict[str, Any]:
    origin = {"name": parent, "uid": "u", "generation": generation, "step": step, "replaces": "digits-0"}
    return {"spec": {"parent": origin}}


FAMILY = {"digits-9": child("digits-2", 1, 10), "digits-8": child("digits-9", 2, 20), "digits-5": child("gone", 1, 5)}


def test_each_child_follows_its_parent(snapshot: Snapshot) -> None:
    drawn = str(lineage.lineage(build(snapshot(600, FAMILY))))
    root = ElementTree.fromstring(drawn)
    names = [one.text for one in root if one.tag == "text" and (one.text or "").startswith("digits-")]
    assert len(names) == 12
    assert names[names.index("digits-2") + 1 :][:2] == ["digits-9", "digits-8"]
    links = [one for one in root.iter("path") if one.get("class") == "target"]
    assert len(links) == 2, "one for each child whose parent is drawn"
    titles = [one.text or "" for one in root.iter("title")]
    assert any("generation 2, child of digits-9 at epoch 20" in text for text in titles)


def test_without_children_nothing_is_drawn(snapshot: Snapshot) -> None:
    assert not lineage.lineage(build(snapshot(600)))
    assert "Lineage" not in page.render(build(snapshot(600)))
    assert "Lineage" in page.render(build(snapshot(600, FAMILY)))


def test_names_are_escaped(snapshot: Snapshot) -> None:
    drawn = str(lineage.lineage(build(snapshot(600, {"digits-9": child("digits-2" + EVIL, 1, 10)}))))
    assert EVIL not in drawn
    ElementTree.fromstring(drawn)


def test_many_trials_are_cut(snapshot: Snapshot, monkeypatch: Any) -> None:
    monkeypatch.setattr(lineage, "MAX_ROWS", 3)
    root = ElementTree.fromstring(str(lineage.lineage(build(snapshot(600, FAMILY)))))
    assert sum(one.tag == "text" and (one.text or "").startswith("digits-") for one in root) == 3


def test_the_table_of_trials_names_parents_of_a_population_only(snapshot: Snapshot) -> None:
    def shown(taken: JobSnapshot) -> str:
        console = Console(file=StringIO(), width=400)
        console.print(trials_table(taken, "number"))
        return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]

    assert "PARENT" not in shown(snapshot(600))
    table = shown(snapshot(600, FAMILY))
    assert "PARENT" in table
    (row,) = [line for line in table.splitlines() if line.startswith("digits-8 ")]
    assert "digits-9  2" in row
