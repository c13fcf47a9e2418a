"""A search with two objectives by `podium run`: the stored front is that of the definition."""

from __future__ import annotations

from local_scene import Scene

PAIR = [{"metric": "score", "direction": "maximize"}, {"metric": "podium.dev/gpu-seconds", "direction": "minimize"}]


def test_the_front_is_stored_and_shown(scene: Scene) -> None:
    scene.write(objective=None, objectives=PAIR, policy={"name": "pareto"})
    output = scene.run("--cpus", "2")
    values = {
        one["metadata"]["name"]: (one["status"]["lastValue"], -one["status"]["gpuSeconds"]) for one in scene.trials()
    }
    front = {
        name
        for name, mine in values.items()
        if not any(other != mine and all(a >= b for a, b in zip(other, mine, strict=True)) for other in values.values())
    }
    status = scene.job()["status"]
    assert {one["trial"] for one in status["paretoFront"]} == front
    for one in status["paretoFront"]:
        score, cost = values[one["trial"]]
        assert one["values"][0] == score
        assert abs(one["values"][1] + cost) < 0.01
    assert status.get("best") is None
    assert "Pareto front of" in output
    assert "<h2>Pareto front</h2>" in (scene.run_folder / "report.html").read_text()
