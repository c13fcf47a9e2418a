"""What rights leave of the state: searches by namespace, and GPUs without the names of others."""

from __future__ import annotations

from pathlib import Path

import pytest
from dashboard_scene import write_objects

from podium_core.schema.gpunode import GPUNode
from podium_dashboard.rights import HIDDEN, Rights, permitted, permitted_nodes
from podium_dashboard.sources.folder import FolderSource
from podium_dashboard.state import State

NOW = "2026-01-01T00:00:00Z"


def node_of(*namespaces: str) -> GPUNode:
    """Return a node whose GPU is held by the first namespace; the others wait. The last has another pod there."""
    refs = [{"namespace": one, "trial": f"{one}-trial", "uid": f"uid-{one}"} for one in namespaces]
    slots = [ref | {"pod": f"{ref['trial']}-0", "podUID": "p", "state": "Suspended", "since": NOW} for ref in refs]
    last = namespaces[-1]
    gpu = {
        "uuid": "GPU-1",
        "index": 0,
        "slots": 4,
        "exclusivePod": f"{last}/exclusive",
        "reservation": f"{last}/reserved",
        "holder": refs[0] | {"since": NOW},
        "trials": slots,
        "otherPods": [{"namespace": last, "pod": f"{last}-notebook", "podUID": "q"}],
    }
    queue = [ref | {"message": f"{ref['trial']} waits", "reason": "Ranked"} for ref in refs]
    return GPUNode.model_validate(
        {
            "metadata": {"name": "node-1"},
            "spec": {"gpus": [{"uuid": "GPU-1", "runQueue": queue}]},
            "status": {"gpus": [gpu]},
        }
    )


@pytest.fixture
def state(tmp_path: Path) -> State:
    write_objects(tmp_path)
    (search,) = FolderSource(tmp_path).state().searches
    return State.of((search,), (node_of("default", "secret"),))


def left(state: State, rights: Rights) -> State:
    return permitted(state, rights, permitted_nodes(state.nodes, rights))


def test_all_rights_leave_everything(state: State) -> None:
    whole = left(state, Rights(None, True))
    assert (whole.searches[0].job, whole.nodes) == (state.searches[0].job, state.nodes)
    assert whole.by_key.keys() == state.by_key.keys()


def test_a_search_of_another_namespace_is_gone_also_from_the_index(state: State) -> None:
    rest = left(state, Rights(frozenset({"other"}), True))
    assert rest.searches == ()
    assert rest.by_key == {}
    assert rest.trial("default", "digits-0") is None


def test_without_the_right_to_list_gpus_there_are_none(state: State) -> None:
    rest = left(state, Rights(frozenset({"default"}), False))
    assert rest.nodes == ()
    assert rest.searches[0].nodes == ()
    assert rest.trial("default", "digits-0") is not None


@pytest.mark.parametrize(("seen", "hidden"), [("default", "secret"), ("secret", "default")])
def test_gpus_keep_their_places_and_lose_the_names_of_others(state: State, seen: str, hidden: str) -> None:
    rest = left(state, Rights(frozenset({seen}), True))
    (node,) = rest.nodes
    (gpu,) = node.status.gpus
    text = node.model_dump_json(by_alias=True, exclude_none=True)
    assert f"{hidden}-trial" not in text
    assert f"{hidden}/" not in text
    assert f"{hidden}-notebook" not in text
    assert f"{seen}-trial" in text
    assert [one.trial for one in gpu.trials].count(HIDDEN) == 1
    assert len({one.uid for one in gpu.trials}) == 2
    assert len(node.spec.gpus[0].run_queue) == 2
    (pod,) = gpu.other_pods
    assert (pod.namespace, pod.pod) == (("", HIDDEN) if hidden == "secret" else ("secret", "secret-notebook"))
    assert gpu.exclusive_pod == (HIDDEN if hidden == "secret" else "secret/exclusive")


def test_namespaces_that_were_not_checked_are_counted(state: State) -> None:
    assert any("7 more namespaces" in one for one in left(state, Rights(frozenset(), True, 7)).problems)
