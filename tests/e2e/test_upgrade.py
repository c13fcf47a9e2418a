"""An upgrade from release 0.1.0 under load, its rollback, and each component at the other release.

Eight trials share two GPUs meanwhile. The commands are those of docs/how-to/upgrade-and-uninstall.md. The file leaves
the present release on the cluster, as it found it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from page_commands import section
from script_modules import load

from podium_devcluster.artifacts.earlier import EarlierCommit, MissingCommitError

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/upgrade-and-uninstall.md"
RELEASE = EarlierCommit("27e08f45")  # release 0.1.0
PRESENT = "localhost/podium:dev"
NAMESPACE = "podium-system"
OBJECTS = "deployments,daemonsets,configmaps,jobs,services,serviceaccounts"
COMPONENTS = {"agent": "daemonset/podium-agent", "operator": "deployment/podium-operator"}
COMPONENTS["extender"] = "deployment/podium-scheduler"
JOB, TRIALS, STEP_SECONDS = "upgraded", 8, 3.0
HELD_AT = 53  # the step at which a trial of scripts/steady.py waits for its release
Site = Any
Scene = Any


@dataclass
class Installation:
    """Podium of the cluster, which the commands of the page change."""

    site: Site
    chart: Path  # of the earlier release
    values: Path
    pauses: ModuleType
    rolls: dict[str, Any] = field(default_factory=dict)  # when each change took place
    searches: list[Any] = field(default_factory=list)  # when another search took a GPU for some time

    def run(self, script: str, seconds: float = 340) -> str:
        """Run lines of the page, in the folder of the checkout."""
        path = os.pathsep.join([str(self.site.cluster.cache.bin), os.environ["PATH"]])
        argv = ["env", f"PATH={path}", "bash", "-euo", "pipefail", "-c", script]
        output: str = self.site.demo.call(self.site.place, argv, seconds, quiet=True)
        return output

    def install(self) -> None:
        """Replace Podium by the earlier release, with its CRDs."""
        self.remove()
        self.run(section(PAGE, "Uninstall")[1])  # the CRDs
        options = f"--namespace {NAMESPACE} --values {self.values} --wait --timeout 5m"
        self.run(f"helm install podium {self.chart} {options}")

    def remove(self) -> None:
        """Uninstall Podium if it is installed, and wait until its pods are gone."""
        if self.run(f"helm list --namespace {NAMESPACE} --short", 60).split():
            self.run(section(PAGE, "Uninstall")[0])
        self.site.until("Podium's pods are gone", lambda: not self.site.objects("pods", "-n", NAMESPACE), 90)

    @contextlib.contextmanager
    def roll(self, name: str) -> Iterator[None]:
        """Note when a change took place."""
        start = time.monotonic()
        yield
        self.rolls[name] = self.pauses.Span(start, time.monotonic())

    def images(self) -> dict[str, set[str]]:
        """Return the images of each component of Podium, in pods that are not ending."""
        found: dict[str, set[str]] = {component: set() for component in COMPONENTS}
        for pod in self.site.objects("pods", "-n", NAMESPACE):
            for container in pod["spec"]["containers"]:
                if container["name"] in found and "deletionTimestamp" not in pod["metadata"]:
                    found[container["name"]].add(container["image"])
        return found


@pytest.fixture(scope="module")
def installation(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The earlier release: its image on the nodes, and its chart. At the end the present release is installed."""
    folder = tmp_path_factory.mktemp("release")
    try:
        RELEASE.export(folder, "charts/podium")
    except MissingCommitError as error:
        pytest.skip(str(error))  # tests/conftest.py turns this into a failure where CI=true
    site.cluster.load_images([RELEASE.ensure_image(site.cluster.cache, site.cluster.progress)])
    values = yaml.safe_load((ROOT / "examples/demo-values.yaml").read_text())
    del values["image"]["tag"]  # the chart of a release names the image by itself
    values["agent"]["slotsPerGPU"] = TRIALS // 2 + 1  # one for the searches that start between the changes
    (folder / "values.yaml").write_text(yaml.safe_dump(values))
    pauses = load(Path(__file__).with_name("pauses.py"))
    made = Installation(site, folder / "podium-0.1.0.tgz", folder / "values.yaml", pauses)
    made.run(f"helm package {folder}/charts/podium --app-version {RELEASE.commit} --destination {folder}")
    yield made
    site.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "charts/podium/crds"))
    site.demo.install(site.place)


def test_eight_trials_notice_no_upgrade_no_rollback_and_no_mixture(installation: Installation, scene: Scene) -> None:
    installation.install()
    logs = scene.search(JOB, "held", trials=TRIALS, seconds=STEP_SECONDS)
    scene.until(logs, "all have started", lambda: started(scene) == TRIALS, 120)
    apply, upgrade = section(PAGE, "Upgrade")
    with installation.pauses.FreezeWatch(freezer_files(scene)) as watch:
        with installation.roll("nothing"):
            await_switches(scene, logs, 2 * TRIALS)  # each trial waits for all others of its GPU
        assert len(scene.site.frozen()) >= TRIALS // 2, "most trials are suspended"
        with pytest.raises(scene.site.demo.StepError, match="apply those of this chart first"):
            installation.run(upgrade)
        installation.run(apply)
        for name, script, older in (
            ("helm upgrade", upgrade, ()),
            ("helm rollback", "".join(section(PAGE, "Roll back")), COMPONENTS),
            ("second helm upgrade", upgrade, ()),
            ("older agent", undo("agent"), ("agent",)),
            ("older operator", undo("agent", "operator"), ("operator",)),
            ("older extender", undo("operator", "extender"), ("extender",)),
            ("none older", undo("extender"), ()),
        ):
            with installation.roll(name):
                installation.run(script)
            expected = {one: {RELEASE.image if one in older else PRESENT} for one in COMPONENTS}
            scene.until(logs, name, lambda expected=expected: installation.images() == expected, 60)
            await_switches(scene, logs, 1)
            if len(older) == 1:
                with installation.roll("search"):
                    run_another_search(scene, f"beside-{older[0]}")
                installation.searches.append(installation.rolls.pop("search"))
        frozen = watch.spans
    scene.release(JOB)
    assert scene.wait_for_end(logs)["status"]["phase"] == "Succeeded"
    check_pauses(installation, frozen, steps_by_node(scene))
    check_search(scene, logs)
    installation.remove()
    left = scene.site.kubectl("get", OBJECTS, "-n", NAMESPACE, "-l", "app.kubernetes.io/name=podium", "-o", "name")
    assert left == ""
    assert not scene.site.frozen()
    scene.finish(JOB)


def started(scene: Scene) -> int:
    return sum(scene.last_step(trial) > 0 for trial in scene.trials(JOB))


def await_switches(scene: Scene, logs: Any, number: int) -> None:
    before = scene.suspensions(JOB)
    scene.until(logs, f"{number} suspensions", lambda: scene.suspensions(JOB) >= before + number, 120)


def run_another_search(scene: Scene, name: str) -> None:
    """Run a search of one short trial: all components take part in its start."""
    logs = scene.search(name, trials=1, seconds=0.02)
    assert scene.wait_for_end(logs, 90)["status"]["phase"] == "Succeeded"
    assert scene.check_results(logs) == 0
    scene.finish(name)


def undo(*components: str) -> str:
    """Return the page's commands for one component, for each of these."""
    (script,) = section(PAGE, "Return one component")
    assert script.count(COMPONENTS["agent"]) == 2
    return "".join(script.replace(COMPONENTS["agent"], COMPONENTS[component]) for component in components)


def freezer_files(scene: Scene) -> Mapping[Path, str]:
    """Return the file with the state of each trial's cgroup, and its content if the trial is thawed."""
    thawed: Mapping[str, str] = scene.site.evidence.THAWED
    folders = [scene.freezer(pod) for pod in scene.pods(JOB)]
    found = {folder / name: thawed[name] for folder in folders for name in thawed if (folder / name).exists()}
    assert len(found) == TRIALS
    return found


def steps_by_node(scene: Scene) -> Mapping[str, list[tuple[int, float]]]:
    """Return the steps of all trials with their times, by node, from the records that the scripts keep."""
    found: dict[str, list[tuple[int, float]]] = {}
    for pod in scene.pods(JOB):
        record = scene.folder(JOB, pod["metadata"]["labels"]["podium.dev/trial"]) / "steps.txt"
        lines = [line.split() for line in record.read_text().splitlines()]
        found.setdefault(pod["spec"]["nodeName"], []).extend((int(line[1]), float(line[3])) for line in lines)
    return found


def check_pauses(installation: Installation, frozen: list[Any], steps: Mapping[str, list[tuple[int, float]]]) -> None:
    """Print the longest pauses during each change, and compare them with its duration.

    Another search on the GPU explains a pause as well. On a slow machine trials may have reached the step at which they
    wait, so later pauses of a GPU mean nothing.
    """
    pauses, rolls = installation.pauses, installation.rolls
    gaps = [gap for taken in steps.values() for gap in pauses.between(at for _, at in taken)]
    nothing = rolls.pop("nothing")
    usual, usual_gap = pauses.longest(frozen, nothing), pauses.longest(gaps, nothing)
    until = min(at for taken in steps.values() for step, at in taken if step == HELD_AT)
    print(f"without a change: a trial frozen {usual:.1f} s, no step on a GPU {usual_gap:.1f} s")
    causes, late = [*rolls.values(), *installation.searches], []
    for name, roll in rolls.items():
        freezes, idle = ([span for span in spans if span.meets(roll)] for spans in (frozen, gaps))
        freeze, gap = pauses.longest(freezes, roll), pauses.longest(idle, roll)
        print(f"{name}: {roll.seconds:.1f} s; a trial frozen {freeze:.1f} s, no step on a GPU {gap:.1f} s")
        more = {"a trial frozen": pauses.excess(freezes, usual, causes)}
        if roll.end < until:
            more["no step on a GPU"] = pauses.excess(idle, usual_gap, causes)
        late += [f"{name}: {what} {seconds:.1f} s longer than explained" for what, seconds in more.items() if seconds]
    assert not late
    assert rolls["helm upgrade"].end < until, "all trials trained during the first upgrade"


def check_search(scene: Scene, logs: Any) -> None:
    """Check that the search has the results of an undisturbed one, in the pods that it had at the start."""
    assert scene.check_results(logs) == 0, "only Podium was replaced, so no work is lost"
    assert all(trial["status"]["failures"] == trial["status"]["attempt"] == 0 for trial in scene.trials(JOB))
    assert len(scene.pods(JOB)) == TRIALS
    scene.check_no_leaks(JOB)
