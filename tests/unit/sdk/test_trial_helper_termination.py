"""podium.trial in a process that is killed or gets SIGTERM: a complete checkpoint remains."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
from trial_process import end, names, run, whole, write

from podium import trial

pytestmark = pytest.mark.usefixtures("fresh")


KILLED_AT = """
def fill(folder):
    (folder / "weights").write_text("2")
    (folder / "more").mkdir()
    (folder / "more" / "optimizer").write_text("2")
seen = 0
def hook(event, args):
    global seen
    if event.startswith(("open", "os.", "shutil.")):
        seen += 1
        if seen == int(sys.argv[1]):
            os._exit(9)
sys.addaudithook(hook)
trial.save(2, fill)
os._exit(0)
"""


def test_a_kill_before_any_file_operation_leaves_a_complete_checkpoint(folder: Path, mounted: str) -> None:
    """A real process, ended at its first operation, its second, and so on until it comes through."""
    moment, code, last = 0, 9, (1.0, "1")
    while code == 9:
        moment += 1
        shutil.rmtree(folder, ignore_errors=True)
        trial.save(1, write("1"))
        process = run(KILLED_AT, str(moment), PODIUM_PYTHON=mounted, PODIUM_CHECKPOINT=str(folder))
        process.communicate(timeout=300)
        code = process.returncode
        now = whole(trial.load())
        assert now in ((1, "1"), (2, "2"))
        assert now >= last, "once the new save counts, it counts"
        last = now
        trial.save(3, write("3"))
        assert names(folder) == ["podium-checkpoint.json", "step-3"], f"what was torn at {moment} is cleared away"
    assert code == 0
    assert last == (2, "2")
    assert moment > 10


def test_sigterm_requests_one_more_checkpoint(folder: Path, mounted: str) -> None:
    code = """
import time
trial.stopping()
print("ready", flush=True)
while not trial.stopping():
    time.sleep(0.01)
assert trial.should_save()
trial.save(5, lambda folder: None)
assert trial.stopping() and not trial.should_save()
sys.exit(trial.STOPPED)
"""
    process = run(code, PODIUM_PYTHON=mounted, PODIUM_CHECKPOINT=str(folder))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    end(process, trial.STOPPED)
    assert trial.load() == (5, folder / "step-5")


def test_the_previous_handler_is_called_and_workers_still_end(mounted: str) -> None:
    code = """
import multiprocessing, signal, time
trial.stopping()
pool = multiprocessing.get_context("fork").Pool(2)
pool.map(abs, range(8))
pool.terminate()  # SIGTERM to the workers, which have inherited our handler
pool.join()
assert not trial.stopping()
trial._state.listening = False
signal.signal(signal.SIGTERM, lambda *_: print("received", flush=True))
trial.stopping()
os.kill(os.getpid(), signal.SIGTERM)
assert trial.stopping()
"""
    assert end(run(code, PODIUM_PYTHON=mounted)) == "received\n"


def test_without_a_call_sigterm_ends_a_script_as_usual(mounted: str, folder: Path) -> None:
    code = "trial.load(); trial.params(); trial.save(1, lambda f: None); trial.should_save(); print('x', flush=True)\n"
    process = run(code + "sys.stdin.read()", PODIUM_PYTHON=mounted, PODIUM_CHECKPOINT=str(folder))
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    end(process, -signal.SIGTERM)


SIGTERM_BETWEEN = """
import signal
trial.stopping()
def sigterm():
    os.kill(os.getpid(), signal.SIGTERM)
step = 0
while True:
    step += 1
    if trial.should_save():
        trial.save(step, lambda folder: None)
    if step == 3:
        {between}
    if trial.stopping():
        break
print(step)
"""


@pytest.mark.parametrize(
    ("between", "ends_at"),
    [
        ("sigterm()", 4),
        ("trial.save(step, lambda folder: None); sigterm()", 3),
        ("trial.save(step, lambda folder: sigterm())", 3),
    ],
    ids=["before the save", "after a save", "during a save"],
)
def test_sigterm_between_the_two_calls_does_not_lose_the_step(
    folder: Path, mounted: str, between: str, ends_at: int
) -> None:
    """A script that hears "no" from should_save() and then "yes" from stopping() would end without a checkpoint."""
    code = SIGTERM_BETWEEN.replace("{between}", between)
    assert end(run(code, PODIUM_PYTHON=mounted, PODIUM_CHECKPOINT=str(folder))) == f"{ends_at}\n"
    assert trial.load() == (ends_at, folder / f"step-{ends_at}")


@pytest.mark.parametrize("asks", ["", "trial.should_save(); trial.stopping()", "trial.should_save()"])
def test_the_signal_is_delayed_once_and_only_between_the_two_calls(folder: Path, mounted: str, asks: str) -> None:
    code = f"""
import signal
trial.stopping()
{asks}
os.kill(os.getpid(), signal.SIGTERM)
print(trial.stopping(), trial.stopping())
"""
    held = asks == "trial.should_save()"
    assert end(run(code, PODIUM_PYTHON=mounted, PODIUM_CHECKPOINT=str(folder))) == f"{not held} True\n"
    assert end(run(code, PODIUM_PYTHON=mounted)) == "True True\n", "with no folder nothing can be saved"
