"""What trials find at /podium, and the lock that keeps a second agent from the node."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from podium_agent.node_setup import NodeLock, fill_trial_folder
from podium_agent.settings import AgentSettings


def test_each_file_of_the_trial_folder_is_replaced_atomically(tmp_path: Path) -> None:
    source, folder = tmp_path / "helper", tmp_path / "trial"
    for content in (b"program", b"newer program"):
        source.write_bytes(content)
        fill_trial_folder(folder, source)
        assert (folder / "podium-gate").read_bytes() == content
    modes = {path.relative_to(folder).as_posix(): path.stat().st_mode & 0o777 for path in folder.rglob("*")}
    assert modes == {
        "podium-gate": 0o755,
        "python": 0o755,
        "python/podium": 0o755,
        "python/podium/__init__.py": 0o644,
        "python/podium/push.py": 0o644,
        "python/podium/trial.py": 0o644,
    }
    with pytest.raises(FileNotFoundError, match="PODIUM_HELPER"):
        fill_trial_folder(folder, tmp_path / "none")


def test_a_script_imports_the_helper_from_the_trial_folder(tmp_path: Path) -> None:
    """As a trial's image does it: nothing of Podium installed, the standard library only."""
    (tmp_path / "helper").write_bytes(b"program")
    fill_trial_folder(tmp_path / "trial", tmp_path / "helper")
    script = "import podium.trial as t; print(t.__file__, t.params({'lr': 0.1}))"
    environment = {"PYTHONPATH": str(tmp_path / "trial/python"), "PODIUM_PARAMS": '{"lr": 0.5}'}
    python = [sys.executable, "-S", "-c", script]
    done = subprocess.run(python, env=environment, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split(maxsplit=1) == [f"{tmp_path}/trial/python/podium/trial.py", "{'lr': 0.5}\n"]


def test_a_second_agent_waits_and_reports_it(tmp_path: Path) -> None:
    settings = AgentSettings(node_name="n", trial_dir=tmp_path / "podium/trial")
    first, second = NodeLock(settings.lock_file), NodeLock(settings.lock_file)
    assert first.trouble is not None

    async def story() -> None:
        worked = asyncio.Event()

        async def work_second() -> None:
            async with second.held():
                worked.set()

        async with first.held():
            assert first.trouble is None
            task = asyncio.ensure_future(work_second())
            while "pid" not in (second.trouble or ""):  # noqa: ASYNC110 - that is all there is to be seen of it
                await asyncio.sleep(0.01)
            assert f"pid {os.getpid()} holds {settings.lock_file}" in (second.trouble or "")
            assert not worked.is_set()
        await asyncio.wait_for(worked.wait(), 300)
        assert second.trouble is None
        await task

    asyncio.run(asyncio.wait_for(story(), 300))
    assert settings.lock_file.parent != settings.trial_dir, "a trial could take it there"


def test_a_killed_agent_leaves_no_lock_behind(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys; from pathlib import Path; from podium_agent.node_setup import NodeLock\n"
        "async def main():\n"
        "    async with NodeLock(Path(sys.argv[1])).held():\n"
        "        print('held', flush=True); await asyncio.sleep(60)\n"
        "asyncio.run(main())"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "agent.lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        first.kill()

    async def take() -> None:
        async with NodeLock(tmp_path / "agent.lock").held():
            pass

    asyncio.run(asyncio.wait_for(take(), 300))
