"""Live migration of a trial without checkpoints, with its GPU memory and without lost work.

`podium drain` moves the trial there and back, also without the registry and with killed agents. So does rebalancing.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from script_modules import load

from podium_devcluster.artifacts.debian import PackageError
from podium_devcluster.runtime import registry
from podium_devcluster.shell import CommandError

pytestmark = pytest.mark.e2e
METHOD = "container-checkpoint"
IMAGE = "localhost/podium-digits:dev"
EPOCHS, PAUSE = 100, 2  # seconds between epochs: long enough for two migrations
REBALANCED_EPOCHS, REBALANCED_PAUSE = 60, 1  # one migration
# The example's training with pauses that leave the processors to other processes. With the file it has no pauses.
PACED = """
import os, sys, time
sys.path.insert(0, "/app")
import train
whole, pause = train.train_epoch, float(sys.argv.pop(1))
def paced(*given):
    if not os.path.exists("/tmp/go"):
        time.sleep(pause)
    return whole(*given)
train.train_epoch = paced
sys.exit(train.main())
"""
REBALANCED, CROWDED, EMPTY = "rebalanced", "node-1", "node-2"
Site = TrialLogs = Any


def configure_registry(site: Site, address: str) -> None:
    """Restart all agents with this registry; without one they migrate nothing. Rebalancing is disabled."""
    site.upgrade(f"agent.checkpointRegistry={address}", "operator.rebalancing.enabled=false")

    def reported() -> bool:
        nodes = site.objects("gpunodes")
        return all((METHOD in node["status"].get("methods", [])) is bool(address) for node in nodes)

    site.until("the methods of the new agents", reported, 60)


@pytest.fixture(scope="module")
def image(site: Site) -> Iterator[str]:
    """The image of the example in a registry of the nodes. The agents migrate trials meanwhile."""
    try:
        registry.ensure(site.cluster.cache)
    except (CommandError, PackageError) as error:
        pytest.skip(f"cannot install {registry.PACKAGE} with apt: {error}")
    registry.start(site.cluster)
    name = registry.push(site.cluster, "node-1", IMAGE)
    try:
        configure_registry(site, registry.ADDRESS)
        yield name
    finally:
        configure_registry(site, "")


@pytest.fixture
def jobs(site: Site, image: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Two jobs with the same trial. They are deleted before the agents change again."""
    names = ("migrated", "unmoved")
    first, second = (job(site, name, image) for name in names)
    yield first, second
    site.kubectl("delete", "hyperparamjob", *names, "--ignore-not-found", "--timeout=90s", timeout=100)


def test_a_drain_loses_no_step_of_a_trial_without_checkpoints(
    site: Site, jobs: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    migrated, unmoved = jobs
    site.kubectl("apply", "-f", "-", stdin=json.dumps(migrated))
    # it may not be the first attempt, if a kubelet refused a pod before it knew the new agent
    started = site.until("an epoch", lambda: running(status(site, "migrated")), 120)
    here = started["node"]
    there = next(name for name in ("node-1", "node-2") if name != here)
    # pinned, so that it does not wait for the other trial's time slice to end
    site.kubectl("patch", "hyperparamtrial", "migrated-0", "--type=merge", "-p", '{"spec": {"pinned": true}}')
    # no drain migrates this trial
    unmoved["spec"]["suspension"]["methods"].remove(METHOD)
    unmoved["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": there}
    site.kubectl("apply", "-f", "-", stdin=json.dumps(unmoved))

    check_fallback_without_registry(site, here)
    try:
        output = site.podium("drain", here, "--wait", "180", timeout=200)
        assert "migrated-0 is migrated live" in output
        site.until("the trial is restored there", lambda: restored(site, there), 120)
    finally:
        site.podium("drain", here, "--undo")
    try:
        site.podium("drain", there, "--wait", "0")
        # all agents are killed while its image is pulled, or soon after
        site.until(
            "the checkpoint image is pushed",
            lambda: migration(site).get("image") and migration(site)["targetNode"] == here,
            120,
        )
        assert site.kill_program("podium-agent") == 2
        site.until("the trial is restored on its first node", lambda: restored(site, here), 180)
    finally:
        site.podium("drain", there, "--undo")
    for name in ("migrated", "unmoved"):
        finish_quickly(site, name)
    for name in ("migrated", "unmoved"):
        site.until(f"{name} has ended", lambda name=name: ended(status(site, name)), 180)
    trial = status(site, "migrated")
    # a pod that is bound while its node has no agent is rejected, and another one follows
    assert trial["attempt"] >= started.get("attempt", 0) + 2
    assert trial["node"] == here
    assert trial.get("lostWork", {}).get("steps", 0) == 0
    assert values(trial) == values(status(site, "unmoved"))
    for node in (here, there):
        assert not list((site.cluster.node_root(node) / "var/lib/kubelet/checkpoints").glob("*.tar"))
    site.until("no image is left", lambda: not registry.images(site.cluster, "podium-checkpoints"), 60)


@pytest.fixture
def crowded(site: Site, image: str) -> Iterator[TrialLogs]:
    """The logs of two trials on one node's GPU, while the other node is cordoned."""
    names = [node["metadata"]["name"] for node in site.objects("nodes")]
    assert names == [CROWDED, EMPTY]
    manifest = job(site, REBALANCED, image)
    manifest["spec"] |= {
        "trials": {"max": 2, "parallel": 2, "maxSteps": 100_000}
    }  # so far away that a move is worth its cost at any speed
    manifest["spec"]["policy"] = {"name": "round_robin", "settings": {"quantum": 2}}
    # without its parameters, both trials compute the same
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["python3", "-c", PACED, f"{REBALANCED_PAUSE}", f"--epochs={REBALANCED_EPOCHS}", "--work=2"]
    logs = load(Path(__file__).with_name("scene.py")).TrialLogs(site, REBALANCED)
    try:
        site.set_rebalancing(True)
        site.kubectl("cordon", EMPTY)
        site.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
        yield logs
    finally:
        logs.close()
        site.kubectl("delete", "hyperparamjob", REBALANCED, "--ignore-not-found", "--timeout=90s", timeout=100)
        site.kubectl("uncordon", EMPTY)  # the last test: `image` disables rebalancing and migration in one upgrade


def test_rebalancing_migrates_a_trial_without_checkpoints_to_the_free_node(site: Site, crowded: TrialLogs) -> None:
    def trials() -> list[dict[str, Any]]:
        crowded.open_new()
        found = site.objects("hyperparamtrials", "-l", f"podium.dev/job={REBALANCED}")
        return [trial.get("status", {}) for trial in found]

    def started() -> bool:
        return [one.get("node") for one in trials() if one.get("lastStep", 0) >= 1] == [CROWDED] * 2

    def moved() -> int | None:
        migrations = [one.get("migration") or {} for one in trials()]
        done = [one.get("phase") == "Restored" for one in migrations]
        return done.index(True) if any(done) else None

    def all_ended() -> bool:
        return all(one.get("phase") == "Succeeded" and one.get("lastStep") == REBALANCED_EPOCHS for one in trials())

    site.until("both have started", started, 120)
    assert not any(one.get("migration") for one in trials()), "no trial moves to a cordoned node"
    site.kubectl("uncordon", EMPTY)
    site.until("one is restored there", lambda: moved() is not None, 180)
    finish_quickly(site, REBALANCED)
    site.until("both have ended", all_ended, 240)
    number_moved = moved()
    assert number_moved is not None
    statuses = trials()
    move = statuses[number_moved]["migration"]
    assert (move["reason"], move["sourceNode"], move["targetNode"]) == ("Rebalancing", CROWDED, EMPTY)
    assert [one["node"] for one in statuses] == [EMPTY if number == number_moved else CROWDED for number in range(2)]
    printed = [list(crowded.printed(f"{REBALANCED}-{number}", "val_acc").values()) for number in range(2)]
    assert [len(attempts) for attempts in printed] == [2 if number == number_moved else 1 for number in range(2)]
    curves = [list(itertools.chain(*attempts)) for attempts in printed]
    assert [step for step, _ in curves[0]] == list(range(1, REBALANCED_EPOCHS + 1)), "each step once, none lost"
    assert curves[0] == curves[1], "both have the same values, bit for bit"
    assert all(one.get("lostWork", {}).get("steps", 0) == 0 for one in statuses)
    site.until("no image is left", lambda: not registry.images(site.cluster, "podium-checkpoints"), 60)


def check_fallback_without_registry(site: Site, node: str) -> None:
    """Check that without the registry a migration fails, and the trial continues and may retry."""
    before = status(site, "migrated")
    registry.kill(site.cluster, node)
    try:
        site.podium("drain", node, "--wait", "0")
        site.until("the migration fails", lambda: migration(site).get("code") == "RegistryUnreachable", 90)
    finally:
        registry.start_again(site.cluster, node)
        site.podium("drain", node, "--undo")
    before_resume = status(site, "migrated")
    assert (before_resume["node"], before_resume.get("attempt", 0)) == (node, before.get("attempt", 0))
    site.until("the trial continues", lambda: status(site, "migrated")["lastStep"] > before_resume["lastStep"], 60)
    site.until("the migration is removed from the status", lambda: not migration(site), 60)


def finish_quickly(site: Site, name: str) -> None:
    """Let the trials of a search run without pauses."""

    def settled() -> list[dict[str, Any]]:
        trials = site.objects("hyperparamtrials", "-l", f"podium.dev/job={name}")
        return trials if all(trial["status"]["phase"] in ("Running", "Succeeded") for trial in trials) else []

    for trial in site.until(f"the trials of {name} run or have ended", settled, 60):
        if trial["status"]["phase"] == "Running":
            site.kubectl("exec", trial["status"]["pod"], "--", "touch", "/tmp/go")


def migration(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = status(site, "migrated").get("migration") or {}
    return found


def restored(site: Site, node: str) -> bool:
    return (migration(site).get("targetNode"), migration(site).get("phase")) == (node, "Restored")


def job(site: Site, name: str, image: str) -> dict[str, Any]:
    """Return a job with one trial without checkpoints, suspended by `cuda-checkpoint`.

    All jobs have the same trial.
    """
    manifest: dict[str, Any] = site.example(name)
    spec = manifest["spec"]
    del spec["checkpoint"]
    spec["trials"] = {"max": 1, "parallel": 1, "maxSteps": EPOCHS}
    spec["gpus"] = {"perTrial": 1, "memory": "64Mi"}
    spec["suspension"] = {"methods": ["cuda-checkpoint", METHOD]}
    container = spec["template"]["spec"]["containers"][0]
    container["image"] = image
    container["command"] = ["python3", "-c", PACED, f"{PAUSE}", f"--epochs={EPOCHS}", "--work=2", "$(podium.args)"]
    return manifest


def status(site: Site, name: str) -> dict[str, Any]:
    found = site.objects("hyperparamtrials", "-l", f"podium.dev/job={name}")
    return found[0].get("status", {}) if found else {}


def running(status: dict[str, Any]) -> dict[str, Any]:
    """Return the status once both writers, agent and operator, show a running trial; otherwise {}."""
    started = (status.get("lastStep") or 0) >= 1 and status.get("phase") == "Running" and status.get("node")
    return status if started else {}


def ended(status: dict[str, Any]) -> bool:
    """Return whether the trial has succeeded and its agent has reported the last epoch."""
    return bool(status.get("phase") == "Succeeded" and status.get("lastStep") == EPOCHS)


def values(status: dict[str, Any]) -> dict[int, float]:
    points = {int(point["step"]): point["value"] for point in status["curve"]["points"]}
    assert max(points) == EPOCHS
    return points
