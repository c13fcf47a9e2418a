"""Generated CRDs and reference pages: up to date, structural, with a description of every field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ruamel.yaml import YAML

from podium_core.schema.generation.crd import KINDS, Kind, crd, differences, files, main, open_api
from podium_core.schema.generation.openapi import PRESERVE, schema_of
from podium_core.schema.rules import Rule

ROOT = Path(__file__).parents[3]
EACH_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every node of the schema with its path."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from nodes(field, f"{path}.{name}".lstrip("."))
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if key in schema:
            yield from nodes(schema[key], f"{path}{mark}")


def test_generated_files_are_up_to_date() -> None:
    assert list(differences(ROOT)) == [], "run `make generate`"


def test_check_lists_stale_files_and_write_updates_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pyproject.toml").touch()
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert capsys.readouterr().out.count("not up to date; run `make generate`: ") == len(files())
    assert main(["--write", "--root", str(tmp_path)]) == 0
    assert main(["--check", "--root", str(tmp_path)]) == 0
    (tmp_path / "crds/gpunodes.yaml").write_text("other")
    assert main(["--check", "--root", str(tmp_path)]) == 1


def test_a_folder_without_a_project_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["--write", "--root", str(tmp_path)])


@EACH_KIND
def test_all_yaml_parsers_read_the_same_definition(kind: Kind) -> None:
    text = files()[Path(f"crds/{kind.plural}.yaml")]
    assert yaml.safe_load(text) == YAML(typ="safe", pure=True).load(text) == crd(kind)
    assert json.loads(json.dumps(crd(kind))) == crd(kind)


@EACH_KIND
def test_another_schema_has_another_annotation(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chart compares it with that of the CRD in the cluster, which Helm does not change."""
    before = crd(kind)["metadata"]["annotations"]
    monkeypatch.setattr("podium_core.schema.generation.crd.open_api", lambda kind: {"type": "object"})
    after = crd(kind)["metadata"]["annotations"]
    assert before.keys() == after.keys()
    assert before != after


@EACH_KIND
def test_the_schema_is_structural(kind: Kind) -> None:
    for path, node in nodes(open_api(kind)):
        assert not {"$ref", "$defs", "anyOf", "oneOf", "allOf", "const", "title", "nullable"} & set(node), path
        assert "type" in node or node.get(PRESERVE) or node.get("x-kubernetes-int-or-string"), path
        assert not ("properties" in node and "additionalProperties" in node), path
        assert not isinstance(node.get("exclusiveMinimum", True), int) or node.get("exclusiveMinimum", True) is True, (
            path
        )


def test_only_fields_of_the_first_release_have_defaults() -> None:
    """An operator of the release before, in a roll or after a rollback, refuses fields that it does not know."""
    defaults = {
        f"{kind.name} {path}"
        for kind in KINDS
        if kind.name != "GPUQueue"  # the first release has none
        for path, node in nodes(open_api(kind))
        if "default" in node
    }
    assert defaults == set((Path(__file__).parent / "defaults-of-0.1.0.txt").read_text().splitlines())


@EACH_KIND
def test_every_field_has_a_description(kind: Kind) -> None:
    undescribed = [
        path
        for path, node in nodes(open_api(kind))
        if path.startswith(("spec", "status"))
        and not path.endswith(("]", "}"))
        and not node.get("description")
        # Podium passes these fields on to the pod without reading them
        and node != {PRESERVE: True}
    ]
    assert undescribed == []


@EACH_KIND
def test_a_status_has_no_defaults(kind: Kind) -> None:
    """A default phase would look like a reported one."""
    assert [path for path, node in nodes(open_api(kind)) if path.startswith("status") and "default" in node] == []


def test_schema_defaults_are_those_of_the_models() -> None:
    spec = schema_of(KINDS[0].model, defaults=True)["properties"]["spec"]["properties"]
    assert spec["search"]["default"] == {"algorithm": "random", "seed": 0, "settings": {}, "initialTrials": []}
    assert spec["trials"]["properties"]["parallel"]["default"] == "auto"
    assert spec["policy"]["properties"]["name"]["default"] == "envelope"
    assert "default" not in spec["suspension"], "CEL could not distinguish a given value from the default"
    assert spec["suspension"]["properties"]["methods"]["default"] == ["freeze"]
    assert "default" not in spec["objective"]["properties"]["target"]


@pytest.mark.parametrize("rule", [rule for kind in KINDS for rule in kind.rules], ids=lambda rule: rule.code)
def test_rule_messages_fit_on_one_line(rule: Rule) -> None:
    entry = rule.validation()
    assert "\n" not in entry["message"] + entry["rule"]
    assert not entry["message"].endswith(".")
    assert rule.holds is not None or "oldSelf" in rule.cel or rule.code == "Parallel"


@EACH_KIND
def test_reference_pages_list_every_field(kind: Kind) -> None:
    page = files()[Path(f"docs/reference/{kind.name.lower()}.md")]
    for path, node in nodes(open_api(kind)):
        part, _, field = path.partition(".")
        if part in ("spec", "status") and field and not field.endswith(("]", "}")) and node != {PRESERVE: True}:
            assert f"`{field}`" in page, path
