"""Every module of the benchmarks can be imported. Every benchmark starts and has the options that the Makefile uses."""

from __future__ import annotations

import importlib
import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for path in sorted((ROOT / "benchmarks").rglob("*.py"))
    if path.name != "__init__.py"
}
LIBRARIES = {"torch", "ray"}  # in environments of their own, so they may be missing here
STARTED = {  # programs that a benchmark starts; they have no options
    "benchmarks.agent.migration_work",
    "benchmarks.agent.torch_trial",
    "benchmarks.extender.null_extender",
    "benchmarks.katib.start",
    "benchmarks.rivals.contender_optuna",
    "benchmarks.rivals.contender_podium",
    "benchmarks.rivals.contender_ray",
}
MAIN = 'if __name__ == "__main__"'
BENCHMARKS = [name for name, path in FILES.items() if MAIN in path.read_text() and name not in STARTED]
CALLS = dict(re.findall(r"\$\(BENCH\)(\S+)(.*)", (ROOT / "Makefile").read_text()))
# bench_demo takes 0: only the delays of run queues
WITH_SEEDS = [f"benchmarks{name}" for name, options in CALLS.items() if "SEEDS" in options and "demo" not in name]


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what the benchmarks change in the path of modules."""
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.parametrize("name", FILES)
def test_a_module_can_be_imported(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in LIBRARIES:
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_starts_and_has_the_options_of_the_makefile(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, name, raising=False)  # runpy warns of a module that is already imported
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: ")
    call = CALLS.get(name.removeprefix("benchmarks"), "").replace("$(OUTPUT)", "--out")
    for option in re.findall(r"--[a-z][a-z-]*", call):
        assert re.search(rf"{option}\b", text), f"the Makefile uses {option}"


@pytest.mark.parametrize("name", WITH_SEEDS)
def test_a_benchmark_refuses_no_seeds_before_it_starts(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "argv", [name, "--seeds", "0"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    message = f"{end.value.code}{capsys.readouterr().err}"
    assert re.search(r"--seeds: '?0'?; give .*1 or more", message)


def test_the_makefile_calls_benchmarks_that_exist() -> None:
    assert {f"benchmarks{name}" for name in CALLS} <= set(BENCHMARKS)


def test_the_overview_lists_every_benchmark_of_the_makefile() -> None:
    targets = re.findall(r"^(bench-[a-z-]+): setup", (ROOT / "Makefile").read_text(), re.MULTILINE)
    overview = (ROOT / "benchmarks" / "README.md").read_text()
    assert len(targets) >= len(CALLS) - 1
    assert [target for target in targets if f"| `make {target}` |" not in overview] == []
