"""What happens to the folders of a deleted job, and that the job goes whatever happens to them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from operator_builders import make_job, make_node, make_pod, make_trial, make_world, moment

from podium.schema.job import HyperParamJob
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import JOBS, PODS, TRIALS, Resource
from podium_operator.cleanup import Cleanup
from podium_operator.cleanup_pod import make_cleanup_pod
from podium_operator.finalizers import FINALIZER, wanted
from podium_operator.remove_folder import main as remove_main
from podium_operator.world import World

CLAIM = {"path": "/c", "volume": {"claimName": "runs"}}
ON_NODE = {"path": "/c", "volume": {"hostPath": {"path": "/srv"}}}
TEMPLATE = {"containers": [{"name": "main", "image": "i", "command": ["t"]}]}


def deleted(checkpoint: Mapping[str, Any] = CLAIM, finalizer: str = FINALIZER, **spec: Any) -> HyperParamJob:
    job = make_job(checkpoint=dict(checkpoint), **spec)
    gone = {"deletion_timestamp": job.metadata.creation_timestamp, "finalizers": [finalizer]}
    return job.model_copy(update={"metadata": job.metadata.model_copy(update=gone)})


class Server:
    """An API server as far as a clean-up goes. `ends`: how clean-up pods end (None: they never do)."""

    def __init__(self, world: World, *, ends: str | None = "Succeeded", refuses: str = "", releases: int = 1) -> None:
        self.world = world
        self.gone = asyncio.Event()
        self.calls: list[str] = []
        self.made: list[Mapping[str, Any]] = []
        self.events: list[str] = []
        self._ends = ends
        self._refuses = refuses
        self._releases = releases  # how often the finalizer has to be taken off until that succeeds

    def look(self) -> World:
        return self.world

    async def delete(self, resource: Resource, name: str, *_: Any, uid: str, grace_seconds: int | None = None) -> None:
        self.calls.append(f"delete {name}" + (f" in {grace_seconds} s" if grace_seconds is not None else ""))
        if resource is PODS:
            self.world = replace(self.world, pods=tuple(p for p in self.world.pods if p.uid != uid))
        assert resource in (PODS, TRIALS)
        self.world = replace(self.world, trials=tuple(t for t in self.world.trials if t.metadata.uid != uid))

    async def create(self, resource: Resource, body: Mapping[str, Any], **_: Any) -> None:
        if resource is not PODS:
            self.events.append(f"{body['reason']}: {body['message']}")
            return
        if self._refuses:
            raise ApiError(403, "Forbidden", self._refuses)
        self.calls.append(f"create {body['metadata']['name']}")
        self.made.append(body)

    async def list(self, *_: Any, labels: str) -> dict[str, Any]:
        assert labels == "podium.dev/cleanup=uid-sweep"
        return {"items": [{"metadata": pod["metadata"], "status": {"phase": self._ends}} for pod in self.made]}

    async def apply(self, resource: Resource, body: Mapping[str, Any], **_: Any) -> None:
        assert resource is JOBS
        assert body["metadata"]["finalizers"] == []
        self._releases -= 1
        if self._releases > 0:
            raise ApiError(0, "Timeout", "the API server is away")
        self.calls.append("release")
        self.world = replace(self.world, jobs=())
        self.gone.set()


def run(server: Server, *, image: str | None = "podium:1", seconds: float = 5.0) -> Server:
    async def play() -> None:
        cleanup = Cleanup(cast(Api, server), server.look, image, seconds)
        for _ in range(3):
            cleanup.begin(server.look())
        async with asyncio.timeout(20):
            await server.gone.wait()

    asyncio.run(play())
    return server


def test_trials_go_at_once_then_the_folder_then_the_job() -> None:
    other = make_trial(0, job="other")
    world = make_world(deleted(), make_trial(), make_pod(), other, make_pod("other-0"), make_node())
    server = run(Server(world))
    assert server.calls == ["delete sweep-0-0 in 1 s", "delete sweep-0", "create sweep-cleanup-0", "release"]
    assert server.events == []
    assert server.look().trials == (other,)


FAILURES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("the pod failed", {"ends": "Failed"}, {}, "pod sweep-cleanup-0 failed"),
    ("the pod is refused", {"refuses": "no quota"}, {}, "no quota"),
    ("no image", {}, {"image": None}, "PODIUM_IMAGE"),
    ("it hangs", {"ends": None}, {"seconds": 0.2}, "longer than 0.2 s"),
]


@pytest.mark.parametrize(("server", "how", "says"), [f[1:] for f in FAILURES], ids=[f[0] for f in FAILURES])
def test_a_job_goes_even_if_its_folder_stays(server: dict[str, Any], how: dict[str, Any], says: str) -> None:
    done = run(Server(make_world(deleted()), **server), **how)
    assert done.calls[-1] == "release"
    (event,) = done.events
    assert event.startswith("CheckpointsLeft: Folder lab-sweep-uid-swee of the checkpoint volume was not removed")
    assert says in event


def test_the_finalizer_is_taken_off_until_that_succeeds() -> None:
    assert run(Server(make_world(deleted()), releases=3)).calls[-1] == "release"


@pytest.mark.parametrize(
    "job", [make_job(checkpoint=CLAIM), deleted(finalizer="kopf")], ids=["not deleted", "not ours"]
)
def test_other_jobs_are_left_alone(job: HyperParamJob) -> None:
    async def play() -> None:
        server = Server(make_world(job))
        Cleanup(cast(Api, server), server.look, "i").begin(server.look())
        await asyncio.sleep(0)
        assert server.calls == []
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(play())


def test_folders_of_nodes_are_removed_where_trials_were() -> None:
    hold = {"gpus": ["g"], "node": "node-2", "start": moment(), "end": moment()}
    trial = make_trial(node="node-1", holds=[hold], saved={"step": 1, "at": moment(), "node": "node-3"})
    nodes = [make_node(f"node-{n}") for n in range(5)]
    server = run(Server(make_world(deleted(ON_NODE), trial, *nodes)))
    assert [pod["spec"]["nodeName"] for pod in server.made] == ["node-1", "node-2", "node-3"]
    late = run(Server(make_world(deleted(ON_NODE), *nodes[:2])))
    assert [pod["spec"]["nodeName"] for pod in late.made] == ["node-0", "node-1"], "no trial is left that could say"


@pytest.mark.parametrize(
    ("checkpoint", "held"),
    [
        (CLAIM, True),
        (ON_NODE, True),
        (CLAIM | {"retain": True}, False),
        ({"path": "/c", "volume": {"emptyDir": {}}}, False),
        (None, False),
    ],
)
def test_which_jobs_wait_for_their_folders(checkpoint: Any, held: bool) -> None:
    assert wanted(make_job(checkpoint=checkpoint).spec) is held


def cleanup_pod(node: str | None = None, checkpoint: Any = CLAIM, **template: Any) -> dict[str, Any]:
    return make_cleanup_pod(deleted(checkpoint, template={"spec": TEMPLATE | template}), "podium:1", 0, node)


def test_the_pod_sees_the_volume_and_removes_the_jobs_folder() -> None:
    made = cleanup_pod()
    (container,) = made["spec"]["containers"]
    assert container["command"][-2:] == ["/volume", "lab-sweep-uid-swee"]
    assert made["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "runs"}
    assert "nodeName" not in made["spec"]
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["blockOwnerDeletion"]) == ("HyperParamJob", "uid-sweep", False)


NOT_ROOT: list[dict[str, Any]] = [
    {"securityContext": {"runAsUser": 1000, "fsGroup": 2000}},
    {"securityContext": {"runAsNonRoot": True}},
    {"containers": [{"name": "main", "image": "i", "securityContext": {"runAsUser": 1000, "runAsNonRoot": True}}]},
]


@pytest.mark.parametrize("template", NOT_ROOT)
def test_it_is_the_trials_user_and_restricted_where_that_is_not_root(template: dict[str, Any]) -> None:
    spec = cleanup_pod(**template)["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = spec["containers"][0]["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False
    user = {**spec["securityContext"], **security}.get("runAsUser")
    assert user == (1000 if "1000" in str(template) else None)


@pytest.mark.parametrize("template", [{}, {"securityContext": {"runAsUser": 0}}])
def test_for_files_of_any_user_it_may_remove_and_nothing_else(template: dict[str, Any]) -> None:
    security = cleanup_pod(**template)["spec"]["containers"][0]["securityContext"]
    assert security["runAsUser"] == 0
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["DAC_OVERRIDE", "FOWNER"]}
    assert security["readOnlyRootFilesystem"] is True


def test_a_drained_node_is_cleaned_too() -> None:
    spec = cleanup_pod("node-1", ON_NODE, nodeSelector={"a": "b"})["spec"]
    assert (spec["nodeName"], spec["tolerations"]) == ("node-1", [{"operator": "Exists"}])
    assert "nodeSelector" not in spec


def test_the_folder_goes_with_all_that_is_in_it_and_nothing_beside_it(tmp_path: Path) -> None:
    for path in ("job/trial/step-1", "job/trial-2", "kept"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "job/trial/out").symlink_to(tmp_path / "kept")
    (tmp_path / "kept/file").write_text("x")
    assert remove_main([str(tmp_path), "job"]) == 0
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "kept"]
    assert remove_main([str(tmp_path), "job"]) == 0, "it is gone already"


def test_a_link_in_the_folders_place_is_removed_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "job").symlink_to(tmp_path / "kept")
    assert remove_main([str(tmp_path), "job"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize("folder", ["", ".", "..", "a/b", "/etc"])
def test_only_a_plain_name_is_removed(tmp_path: Path, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    assert remove_main([str(tmp_path), folder]) == 1
    assert "is not removed" in capsys.readouterr().err
    assert (tmp_path / "a/b").is_dir()
