"""What happens to the folders of a deleted job, and that the job is deleted in every case."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from operator_builders import make_cluster_state, make_job, make_node, make_pod, make_trial, moment

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import JOBS, PODS, TRIALS, Resource
from podium_core.schema.job import HyperParamJob
from podium_operator.cleanup import deleted_jobs, removal
from podium_operator.cleanup.cleanup_pod import make_cleanup_pod
from podium_operator.cleanup.deleted_jobs import Cleanup
from podium_operator.cleanup.remove_folder import main as remove_main
from podium_operator.jobs.finalizers import FINALIZER, needs_finalizer
from podium_operator.observe.cluster_state import ClusterState

CLAIM = {"path": "/c", "volume": {"claimName": "runs"}}
ON_NODE = {"path": "/c", "volume": {"hostPath": {"path": "/srv"}}}
TEMPLATE = {"containers": [{"name": "main", "image": "i", "command": ["t"]}]}


POD = "sweep-cleanup-uid-swee-0"


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (deleted_jobs, removal):
        monkeypatch.setattr(module, "POLL_SECONDS", 0.01)


def deleted(checkpoint: Mapping[str, Any] = CLAIM, *finalizers: str, began: bool = True, **spec: Any) -> HyperParamJob:
    """Return a deleted job; `began`: it had trials once."""
    job = make_job(checkpoint=dict(checkpoint), status={"startedAt": moment()} if began else {}, **spec)
    gone = {"deletion_timestamp": job.metadata.creation_timestamp, "finalizers": list(finalizers or [FINALIZER])}
    return job.model_copy(update={"metadata": job.metadata.model_copy(update=gone)})


class Server:
    """API server with what a clean-up needs.

    `ends`: how clean-up pods end (None: they never do); `says`: more of their status; `taken`: names of pods that are
    not Podium's; `lost`: how many clean-up pods another client deletes before they end; `away`: how many calls of
    `list` fail, of trials and of pods; `orphans`: the garbage collector has taken the trials from the job.
    """

    def __init__(
        self,
        cluster: ClusterState,
        *,
        ends: str | None = "Succeeded",
        says: Mapping[str, Any] | None = None,
        refuses: str = "",
        taken: Collection[str] = (),
        lost: int = 0,
        away: tuple[int, int] = (0, 0),
        orphans: bool = False,
        releases: Sequence[Exception] = (),
    ) -> None:
        self.cluster = cluster
        self.gone = asyncio.Event()
        self.calls: list[str] = []
        self.made: list[Mapping[str, Any]] = []
        self.events: list[str] = []
        self._status = {**({"phase": ends} if ends else {}), **(says or {})}
        self._refuses = refuses
        self._taken = taken
        self._lost = lost
        self._away = dict(zip((TRIALS, PODS), away, strict=True))
        self._orphans = orphans
        self._releases = list(releases)  # errors of removing the finalizer until it succeeds

    def read_state(self) -> ClusterState:
        return self.cluster

    async def delete(self, resource: Resource, name: str, *_: Any, uid: str, grace_seconds: int | None = None) -> None:
        self.calls.append(f"delete {name}" + (f" in {grace_seconds} s" if grace_seconds is not None else ""))
        if resource is PODS:
            self.cluster = replace(self.cluster, pods=tuple(p for p in self.cluster.pods if p.uid != uid))
        assert resource in (PODS, TRIALS)
        self.cluster = replace(self.cluster, trials=tuple(t for t in self.cluster.trials if t.metadata.uid != uid))

    async def create(self, resource: Resource, body: Mapping[str, Any], **_: Any) -> None:
        if resource is not PODS:
            self.events.append(f"{body['reason']}: {body['message']}")
            return
        name = body["metadata"]["name"]
        if self._refuses:
            raise ApiError(403, "Forbidden", self._refuses)
        if name in self._taken or name in [pod["metadata"]["name"] for pod in self.made]:
            raise ApiError(409, "AlreadyExists", name)
        self.calls.append(f"create {name}")
        if self._lost:
            self._lost -= 1
        else:
            self.made.append(body)

    async def list(self, resource: Resource, namespace: str, *, labels: str) -> dict[str, Any]:
        assert namespace == "lab"
        if self._away[resource]:
            self._away[resource] -= 1
            raise ApiError(503, "ServiceUnavailable", "the API server is unreachable")
        if resource is TRIALS:
            assert labels == "podium.dev/job-uid=uid-sweep"
            owners = [] if self._orphans else [{"uid": "uid-sweep"}]
            mine = [trial.metadata.name for trial in self.cluster.trials if trial.spec.job == "sweep"]
            return {"items": [{"metadata": {"name": name, "ownerReferences": owners}} for name in mine]}
        assert labels == "podium.dev/cleanup=uid-sweep"
        return {"items": [{"metadata": pod["metadata"], "status": self._status} for pod in self.made]}

    async def apply(self, resource: Resource, body: Mapping[str, Any], **_: Any) -> None:
        assert resource is JOBS
        assert body["metadata"]["finalizers"] == []
        if self._releases:
            raise self._releases.pop(0)
        self.calls.append("release")
        self.cluster = replace(self.cluster, jobs=())
        self.gone.set()


def run(server: Server, *, image: str | None = "podium:1", seconds: float = 300.0) -> Server:
    """Call `begin` again and again until the job is gone, as the reconciler does."""

    async def play() -> None:
        each = Cleanup(cast(Api, server), server.read_state, image, seconds)
        async with asyncio.timeout(300):
            while not server.gone.is_set():
                each.start(server.read_state())
                with suppress(TimeoutError):
                    await asyncio.wait_for(server.gone.wait(), 0.05)

    asyncio.run(play())
    return server


def test_trials_are_deleted_first_then_the_folder_then_the_job() -> None:
    other = make_trial(0, job="other")
    cluster = make_cluster_state(deleted(), make_trial(), make_pod(), other, make_pod("other-0"), make_node())
    server = run(Server(cluster))
    assert server.calls == ["delete sweep-0-0 in 1 s", "delete sweep-0", f"create {POD}", "release"]
    assert server.events == []
    assert server.read_state().trials == (other,)


WAITING = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no pull secret"}}}
ENDED = {"state": {"terminated": {"reason": "Error", "message": "lab-sweep was not removed: Permission denied\n"}}}
FULL = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2"}
FAILURES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("the pod failed", {"ends": "Failed", "says": {"containerStatuses": [ENDED]}}, {}, "denied)"),
    ("the pod was too slow", {"ends": "Failed", "says": {"reason": "DeadlineExceeded"}}, {}, "(DeadlineExceeded)"),
    (
        "no node has capacity",
        {"ends": "Pending", "says": {"conditions": [FULL]}},
        {"seconds": 0.2},
        "(Unschedulable: 0/2)",
    ),
    ("the pod is refused", {"refuses": "no quota"}, {}, "no quota"),
    ("no image", {}, {"image": None}, "PODIUM_IMAGE"),
    ("it hangs", {"ends": None}, {"seconds": 0.2}, f"longer than 0.2 s, pod {POD} has not ended"),
    (
        "its image cannot be pulled",
        {"ends": "Pending", "says": {"containerStatuses": [WAITING]}},
        {"seconds": 0.2},
        f"pod {POD} has not ended (ImagePullBackOff: no pull secret)",
    ),
    ("its name is taken", {"taken": [POD]}, {"seconds": 0.2}, f"{POD} is missing, since another pod has its name"),
    ("it is deleted each time", {"lost": 10**9}, {"seconds": 0.2}, f"pod {POD} is missing"),
    ("no answer", {"away": (10**9, 0)}, {"seconds": 0.2}, "longer than 0.2 s"),
    ("the server does not answer any more", {"away": (0, 10**9)}, {"seconds": 0.2}, "the API server is unreachable"),
]


@pytest.mark.parametrize(("server", "how", "says"), [f[1:] for f in FAILURES], ids=[f[0] for f in FAILURES])
def test_a_job_is_deleted_even_if_its_folder_remains(server: dict[str, Any], how: dict[str, Any], says: str) -> None:
    done = run(Server(make_cluster_state(deleted()), **server), **how)
    assert done.calls[-1] == "release"
    (event,) = done.events
    assert event.startswith("CheckpointsNotRemoved: Folder lab-sweep-uid-swee of the checkpoint volume was not removed")
    assert says in event


def test_a_folder_on_unknown_nodes_is_reported_as_not_removed() -> None:
    (event,) = run(Server(make_cluster_state(deleted(ON_NODE)))).events
    assert "the node of the folder is unknown" in event


@pytest.mark.parametrize("how", [{"lost": 2}, {"away": (2, 0)}, {"away": (0, 2)}, {"away": (1, 1), "lost": 1}])
def test_transient_errors_of_a_clean_up_are_retried(how: dict[str, Any]) -> None:
    server = run(Server(make_cluster_state(deleted()), **how))
    assert server.calls == [f"create {POD}"] * (how.get("lost", 0) + 1) + ["release"]
    assert server.events == []


def test_every_node_has_to_succeed() -> None:
    server = Server(
        make_cluster_state(deleted(ON_NODE), make_node("node-1"), make_node("node-2")), taken=[POD[:-1] + "1"]
    )
    (event,) = run(server, seconds=0.2).events
    assert "uid-swee-1 is missing" in event


def test_a_job_that_never_had_a_trial_has_no_folder() -> None:
    server = run(Server(make_cluster_state(deleted(began=False))))
    assert (server.calls, server.events) == (["release"], [])
    early = run(Server(make_cluster_state(deleted(began=False), make_trial())))
    assert early.calls == ["delete sweep-0", f"create {POD}", "release"], "its status may lag behind"


@pytest.mark.parametrize("finalizers", [(FINALIZER, "orphan"), (FINALIZER,)], ids=["about to", "done"])
def test_orphaned_trials_keep_their_checkpoints(finalizers: tuple[str, ...]) -> None:
    cluster = make_cluster_state(deleted(CLAIM, *finalizers), make_trial(), make_pod())
    server = run(Server(cluster, orphans="orphan" not in finalizers))
    assert (server.calls, server.events) == (["release"], [])


def test_a_failed_clean_up_starts_again(caplog: pytest.LogCaptureFixture) -> None:
    server = run(Server(make_cluster_state(deleted()), releases=[ValueError("<html>")]))
    assert server.calls == [f"create {POD}", "release"], "the pod that has succeeded is not created again"
    assert "failed" in caplog.text


def test_removing_the_finalizer_is_retried_until_it_succeeds() -> None:
    assert (
        run(Server(make_cluster_state(deleted()), releases=[ApiError(0, "Timeout", "away")] * 2)).calls[-1] == "release"
    )


@pytest.mark.parametrize(
    "job", [make_job(checkpoint=CLAIM), deleted(CLAIM, "kopf")], ids=["not deleted", "not Podium's"]
)
def test_other_jobs_are_not_touched(job: HyperParamJob) -> None:
    async def play() -> None:
        server = Server(make_cluster_state(job))
        Cleanup(cast(Api, server), server.read_state, "i").start(server.read_state())
        await asyncio.sleep(0)
        assert server.calls == []
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(play())


def test_folders_are_removed_on_the_nodes_that_had_trials() -> None:
    hold = {"gpus": ["g"], "node": "node-2", "start": moment(), "end": moment()}
    trial = make_trial(node="node-1", allocations=[hold], checkpoint={"step": 1, "at": moment(), "node": "node-3"})
    nodes = [make_node(f"node-{n}") for n in range(5)]
    server = run(Server(make_cluster_state(deleted(ON_NODE), trial, *nodes)))
    assert [pod["spec"]["nodeName"] for pod in server.made] == ["node-1", "node-2", "node-3"]
    late = run(Server(make_cluster_state(deleted(ON_NODE), *nodes[:2])))
    assert [pod["spec"]["nodeName"] for pod in late.made] == ["node-0", "node-1"], "no trial is left that names a node"


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
    assert needs_finalizer(make_job(checkpoint=checkpoint).spec) is held


def cleanup_pod(node: str | None = None, checkpoint: Any = CLAIM, **template: Any) -> dict[str, Any]:
    return make_cleanup_pod(deleted(checkpoint, template={"spec": TEMPLATE | template}), "podium:1", 0, node)


def test_the_clean_up_pod_mounts_the_volume_and_removes_the_jobs_folder() -> None:
    made = cleanup_pod()
    (container,) = made["spec"]["containers"]
    assert container["command"][-2:] == ["/volume", "lab-sweep-uid-swee"]
    assert made["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "runs"}
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert "nodeName" not in made["spec"]
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["blockOwnerDeletion"]) == ("HyperParamJob", "uid-sweep", False)


NOT_ROOT: list[dict[str, Any]] = [
    {"securityContext": {"runAsUser": 1000, "fsGroup": 2000}},
    {"securityContext": {"runAsNonRoot": True}},
    {"containers": [{"name": "main", "image": "i", "securityContext": {"runAsUser": 1000, "runAsNonRoot": True}}]},
]


@pytest.mark.parametrize("template", NOT_ROOT)
def test_the_clean_up_pod_runs_as_the_trials_user_and_restricted_unless_root(template: dict[str, Any]) -> None:
    spec = cleanup_pod(**template)["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = spec["containers"][0]["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False
    user = {**spec["securityContext"], **security}.get("runAsUser")
    assert user == (1000 if "1000" in str(template) else None)


@pytest.mark.parametrize("template", [{}, {"securityContext": {"runAsUser": 0}}])
def test_a_root_clean_up_pod_may_only_remove_files(template: dict[str, Any]) -> None:
    security = cleanup_pod(**template)["spec"]["containers"][0]["securityContext"]
    assert security["runAsUser"] == 0
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["DAC_OVERRIDE", "FOWNER"]}
    assert security["readOnlyRootFilesystem"] is True


def test_a_drained_node_is_cleaned_too() -> None:
    spec = cleanup_pod("node-1", ON_NODE, nodeSelector={"a": "b"})["spec"]
    assert (spec["nodeName"], spec["tolerations"]) == ("node-1", [{"operator": "Exists"}])
    assert "nodeSelector" not in spec


def test_only_the_folder_and_its_content_are_removed(tmp_path: Path) -> None:
    for path in ("job/trial/step-1", "job/trial-2", "kept"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "job/trial/out").symlink_to(tmp_path / "kept")
    (tmp_path / "kept/file").write_text("x")
    assert remove_main([str(tmp_path), "job"]) == 0
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "kept"]
    assert remove_main([str(tmp_path), "job"]) == 0, "it is gone already"


def test_a_link_in_place_of_the_folder_is_removed_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "job").symlink_to(tmp_path / "kept")
    assert remove_main([str(tmp_path), "job"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize("folder", ["", ".", "..", "a/b", "/etc"])
def test_only_a_plain_name_is_removed(tmp_path: Path, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    assert remove_main([str(tmp_path), folder]) == 1
    assert "was not removed" in capsys.readouterr().err
    assert (tmp_path / "a/b").is_dir()
