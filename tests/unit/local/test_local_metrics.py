"""Real searches whose trials print nothing: values from files, event files and pages, also after a SIGKILL."""

from __future__ import annotations

import signal

import pytest
from local_scene import ROOT, Scene, wait_until

# writes one value a step to where --to says, in the way that --how says; continues from its checkpoint
WRITER = f"""
import argparse, json, os, signal, sys, threading, time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
sys.path.insert(0, {str(ROOT / "tests")!r})
parser = argparse.ArgumentParser()
for name, kind in (("how", str), ("to", str), ("x", float), ("steps", int), ("pause", float)):
    parser.add_argument("--" + name, type=kind, default={{"steps": 6, "pause": 0.02}}.get(name))
parser.add_argument("--resume", default="")
parser.add_argument("--hold", default="")
given = parser.parse_args()
stopped = False
def stop(number, frame):
    global stopped
    stopped = True
signal.signal(signal.SIGTERM, stop)
first = json.loads((Path(given.resume) / "state.json").read_text())["step"] if given.resume else 0
page = b""

def lines(step, value):
    with open(given.to, "a") as file:
        if file.tell() == 0:
            file.write("step,score\\n")
        file.write(f"{{step}},{{value!r}}\\n")

def again(step, value):  # the file of another attempt, and of each second step, is replaced
    old = Path(given.to).read_text() if step > first + 1 else ""
    Path(given.to + ".new").write_text(old + json.dumps({{"step": step, "score": value}}) + "\\n")
    os.replace(given.to + ".new", given.to)

def events(step, value):
    from event_files import append, event
    append(Path(given.to) / f"events.out.tfevents.{{first}}.{{step // 4}}", event(step, time.time(), score=value))

def tensorboard(step, value):
    global writer
    from tensorboard.summary import Writer
    if step == first + 1:
        writer = Writer(given.to)
    writer.add_scalar("score", value, step=step)
    writer.flush()

def serve(step, value):
    global page
    if step == first + 1:
        class Page(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(page)
            def log_message(self, *words):
                pass
        port = int(given.to or os.environ["PODIUM_METRICS_PORT"])
        threading.Thread(target=HTTPServer(("127.0.0.1", port), Page).serve_forever, daemon=True).start()
    page = b"step %d\\nscore{{split=\\"val\\"}} %r\\n" % (step, value)

for step in range(first + 1, given.steps + 1):
    time.sleep(given.pause)
    while step == 3 and given.hold and not stopped and not os.path.exists(given.hold):
        time.sleep(0.02)
    globals()[given.how](step, given.x / (step + 1.0))
    folder = os.environ.get("PODIUM_CHECKPOINT")
    if folder:
        for name, content in (("state.json", {{"step": step}}), ("podium-checkpoint.json", {{"step": step}})):
            (Path(folder) / "aside").write_text(json.dumps(content))
            os.replace(Path(folder) / "aside", Path(folder) / name)
    if stopped:
        sys.exit(143)
"""


@pytest.fixture
def written(scene: Scene) -> Scene:
    (scene.folder / "train.py").write_text(WRITER)
    return scene


def points(scene: Scene) -> list[list[tuple[float, float]]]:
    """Return steps and values of each trial; they must have times that increase."""
    curves = [one["status"].get("curve", {}).get("points", []) for one in scene.trials()]
    for curve in curves:
        times = [one["time"] for one in curve]
        assert times == sorted(times)
    return [[(one["step"], one["value"]) for one in curve] for curve in curves]


def expected(scene: Scene) -> list[list[tuple[float, float]]]:
    given = [one["spec"]["parameters"]["x"] for one in scene.trials()]
    return [[(float(step), x / (step + 1.0)) for step in range(1, 7)] for x in given]


def rounded(curves: list[list[tuple[float, float]]]) -> list[list[tuple[float, float]]]:
    """Return the values with the digits that an event file keeps: those of a float of 32 bits."""
    return [[(step, pytest.approx(value, rel=1e-6)) for step, value in curve] for curve in curves]


FILE = {"stepKey": "step", "source": "file"}
EVENTS = {"stepKey": "step", "source": "tensorboard"}
SOURCES = {
    "a table in the trial's folder": (
        "lines",
        "$(podium.checkpoint)/m.csv",
        {**FILE, "path": "m.csv", "format": "csv"},
    ),
    "a file that is replaced": ("again", "/results/m.jsonl", {**FILE, "path": "/results/m.jsonl"}),
    "several event files": ("events", "/ckpt/tb/run", {**EVENTS, "path": "/ckpt/tb"}),
    "TensorBoard's own writer": ("tensorboard", "/logs", {**EVENTS, "path": "/logs"}),
}


@pytest.mark.parametrize("name", SOURCES)
def test_each_value_is_read_once_whatever_happens(written: Scene, name: str) -> None:
    """Four trials share one core by suspension; the runner is killed and continued."""
    how, to, metrics = SOURCES[name]
    if how == "tensorboard":
        pytest.importorskip("tensorboard")
    policy = {"name": "round_robin", "settings": {"quantum": 0.2}}
    written.write(f"--how={how}", f"--to={to}", "--pause=0.1", written.hold, policy=policy, metrics=metrics)
    with written.running("--cpus", "1") as process:
        wait_until(lambda: written.suspensions() > 0)
        written.release()
        wait_until(lambda: sum(map(len, points(written))) >= 8)
        process.send_signal(signal.SIGKILL)
        process.wait()
    written.run("--cpus", "1")
    floats = metrics["source"] == "tensorboard"
    assert points(written) == (rounded(expected(written)) if floats else expected(written))
    stored = [one["status"] for one in written.trials()]
    assert {one["phase"] for one in stored} == {"Succeeded"}
    assert any(one["attempt"] > 0 for one in stored)
    assert written.suspensions() > 0
    assert all(one["gpuSeconds"] > 0.0 for one in stored)
    assert written.logs() == [], "the script prints nothing"
    exported = (written.run_folder / "curves.jsonl").read_text().splitlines()[1:]
    assert len(exported) == 4


PAGE = {"stepKey": "step", "source": "prometheus", "port": 8000, "periodSeconds": 5}
SELECTED = {"metric": 'score{split="val"}', "direction": "maximize"}


def test_each_trial_serves_its_page_at_a_port_of_its_own(written: Scene) -> None:
    trials = {"max": 2, "parallel": 2, "maxSteps": 6}
    written.write(
        "--how=serve", "--to=$(podium.metricsPort)", "--pause=2", objective=SELECTED, metrics=PAGE, trials=trials
    )
    with written.running("--cpus", "2") as process:
        wait_until(lambda: sum(map(bool, points(written))) == 2)
        process.send_signal(signal.SIGKILL)
        process.wait()
    seen = points(written)
    written.run("--cpus", "2")
    for curve, before, wanted in zip(points(written), seen, expected(written), strict=True):
        assert set(curve) <= set(wanted), "no value of the other trial"
        assert len(curve) > len(before), "the next attempt has another port"
        assert curve[: len(before)] == before
    assert {one["status"]["phase"] for one in written.trials()} == {"Succeeded"}


def test_what_was_looked_at_is_said_when_a_trial_ends_without_a_value(written: Scene) -> None:
    objective = {"metric": "acc", "direction": "maximize"}
    metrics = {**EVENTS, "path": "tb"}
    trials = {"max": 1, "maxSteps": 6}
    written.write("--how=events", "--to=$(podium.checkpoint)/tb", objective=objective, metrics=metrics, trials=trials)
    output = written.run()
    assert "no value of 'acc' was read from tensorboard" in output
    assert "no event has the tag acc; the tags are score" in output
    assert "ObjectiveMissing" in str(written.trials()[0]["status"]["conditions"])
