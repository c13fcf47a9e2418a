"""Run the fuzz targets of tests/unit/fuzz: `python tools/fuzz.py [--cases N] [--target NAME] [--jobs N]`; `make fuzz`.

Each target runs in a process of its own. With Atheris, libFuzzer looks for inputs that reach further lines of Podium's
code, and keeps them in the folder, so that the next run begins with them. Without Atheris (it has no package for this
Python or machine), hypothesis draws the cases. A case that fails, takes more than 5 s of CPU time (`tests/fuzzing.py`)
or makes the process larger than 1 GiB ends the target; `--target NAME --input FILE` repeats it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "unit" / "fuzz"
PACKAGES = [
    f"podium_{name}" for name in ("agent", "cluster", "core", "dashboard", "extender", "optimisers", "simulator")
]
MEMORY_MB = 1024
HANG_SECONDS = 1800  # of one case by the clock: only a case that never ends takes so long
MAX_BYTES = 8192  # of the random bytes from which hypothesis draws one case
SEEDS = 200  # random inputs with which a first run begins
REJECTED = 50  # inputs from which no case could be drawn, for each case: more is a target that tests nothing
WITH_ATHERIS = importlib.util.find_spec("atheris") is not None
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]


def main() -> int:
    """Run what the command line asks for, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000, help="of each target (default 100000)")
    parser.add_argument("--target", help="only the targets whose names contain this text")
    parser.add_argument("--jobs", type=int, default=1, help="targets that run at the same time (default 1)")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "fuzz", help="corpora, logs and failures")
    parser.add_argument("--input", type=Path, help="with --target: repeat this case only")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        return _fuzz(given.run, given.cases, given.folder, given.input)
    targets = [one for one in _targets() if (given.target or "") in one]
    if not targets:
        parser.error(f"no target has {given.target!r} in its name; there are: {', '.join(_targets())}")
    if given.input and len(targets) > 1:
        parser.error(f"--input needs one target, but {', '.join(targets)} match --target")
    print(f"{len(targets)} targets, {given.cases} cases each, {'Atheris' if WITH_ATHERIS else 'hypothesis alone'}")
    with ThreadPoolExecutor(given.jobs) as pool:
        ended = list(pool.map(lambda one: _start(one, given), targets))
    failed = [name for name, status in zip(targets, ended, strict=True) if status]
    print(f"{len(targets) - len(failed)} passed" + (f", {len(failed)} failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def _targets() -> list[str]:
    """Return FILE:TEST of each target, by loading the files."""
    return [
        f"{path.stem}:{name}"
        for path in sorted(TESTS.glob("test_*.py"))
        for name, value in vars(_load(path.stem)).items()
        if hasattr(value, "hypothesis")
    ]


def _load(stem: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(stem, TESTS / f"{stem}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _start(target: str, given: argparse.Namespace) -> int:
    """Run one target in a process, and print its last line, or on failure the end of its output."""
    folder = given.folder / target.replace(":", ".")
    folder.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, __file__, "--run", target, "--cases", str(given.cases), "--folder", str(folder)]
    words += ["--input", str(given.input)] if given.input else []
    log, began = folder / "log", time.monotonic()
    with log.open("wb") as output:
        environ = {**os.environ, "PODIUM_FUZZ_CASES": str(given.cases)}
        status = subprocess.run(words, stdout=output, stderr=subprocess.STDOUT, env=environ, check=False).returncode
    lines = log.read_text(errors="replace").splitlines()
    what = f"{time.monotonic() - began:.0f} s: {lines[-1] if lines else 'no output'}"
    print(f"{'FAILED' if status else 'passed'} {target} {what}", flush=True)
    if status:
        print("\n".join(lines[-40:]), f"\nthe whole output: {log}", flush=True)
    return status


def _fuzz(target: str, cases: int, folder: Path, only: Path | None) -> int:
    """Fuzz one target in this process."""
    stem, _, name = target.partition(":")
    if not WITH_ATHERIS:
        import pytest

        return int(pytest.main(["-q", "-p", "no:cacheprovider", f"{TESTS / stem}.py::{name}"]))
    import atheris

    with atheris.instrument_imports(include=PACKAGES):
        module = _load(stem)
    case = getattr(module, name).hypothesis.fuzz_one_input
    counts = {"cases": 0, "inputs": 0}

    def one(data: bytes) -> None:
        counts["inputs"] += 1
        counts["cases"] += case(data) is not None  # None: no case can be drawn from these bytes
        if counts["cases"] >= cases or counts["inputs"] > REJECTED * cases:
            _finish(counts, cases)

    corpus = folder / "corpus"
    if not corpus.exists():  # from nothing, libFuzzer takes long to find inputs that are long enough for a real case
        corpus.mkdir()
        chance = random.Random(name)
        for number in range(SEEDS):
            (corpus / f"seed-{number}").write_bytes(chance.randbytes(chance.randrange(16, MAX_BYTES // 4)))
    words = [f"-rss_limit_mb={MEMORY_MB}", f"-timeout={HANG_SECONDS}", f"-max_len={MAX_BYTES}", "-len_control=0"]
    words += [f"-artifact_prefix={folder}/", str(only or corpus)]
    atheris.Setup([sys.argv[0], *words], one)
    atheris.Fuzz()
    return 0


def _finish(counts: dict[str, int], wanted: int) -> None:
    """Print what was done and end the process: libFuzzer itself only counts inputs."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    seen = counts | {"cpu_seconds": round(usage.ru_utime + usage.ru_stime), "peak_mb": usage.ru_maxrss // 1024}
    print(json.dumps(seen), flush=True)
    os._exit(0 if counts["cases"] >= wanted else 1)


if __name__ == "__main__":
    sys.exit(main())
