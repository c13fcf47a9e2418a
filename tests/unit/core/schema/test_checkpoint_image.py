"""References to checkpoint images: one form is accepted, and only for pods of the trial itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_core.schema.checkpoint_image import ImageReference, image_problem

REGISTRY, DIGEST = "registry.example:5000", f"sha256:{'0123456789abcdef' * 4}"
IMAGE = f"{REGISTRY}/podium-checkpoints/lab/sweep-0-1@{DIGEST}"

FORGED = {
    "empty": "",
    "a tag": f"{REGISTRY}/podium-checkpoints/lab/sweep-0-1:latest",
    "a tag and a digest": f"{REGISTRY}/podium-checkpoints/lab/sweep-0-1:1@{DIGEST}",
    "no digest": f"{REGISTRY}/podium-checkpoints/lab/sweep-0-1",
    "a short digest": f"{REGISTRY}/podium-checkpoints/lab/sweep-0-1@sha256:1",
    "an upper-case digest": f"{REGISTRY}/podium-checkpoints/lab/sweep-0-1@sha256:{'A' * 64}",
    "two digests": f"{REGISTRY}/podium-checkpoints/lab/sweep-0-1@{DIGEST}@{DIGEST}",
    "another repository": f"{REGISTRY}/team/lab/sweep-0-1@{DIGEST}",
    "a way out": f"{REGISTRY}/podium-checkpoints/lab/sweep-0-1/../../../team/model@{DIGEST}",
    "an encoded way out": f"{REGISTRY}/podium-checkpoints/lab/..%2f..%2fteam@{DIGEST}",
    "a query": f"{REGISTRY}/podium-checkpoints/lab/sweep-0-1?x=1@{DIGEST}",
    "a line more": f"{IMAGE}\n",
    "a blank": f" {IMAGE}",
    "a very long name": f"{REGISTRY}/podium-checkpoints/lab/{'a.' * 5000}a@{DIGEST}",
}
WRONG = {
    "another registry": f"evil.example/podium-checkpoints/lab/sweep-0-1@{DIGEST}",
    "another namespace": f"{REGISTRY}/podium-checkpoints/other/sweep-0-1@{DIGEST}",
    "another trial": f"{REGISTRY}/podium-checkpoints/lab/sweep-1-1@{DIGEST}",
    "a trial whose name begins alike": f"{REGISTRY}/podium-checkpoints/lab/sweep-0-1-1@{DIGEST}",
}


def test_the_parts_of_a_reference() -> None:
    image = ImageReference.parse(IMAGE)
    assert (image.registry, image.namespace, image.pod) == (REGISTRY, "lab", "sweep-0-1")
    assert (image.repository, f"sha256:{image.digest}") == ("podium-checkpoints/lab/sweep-0-1", DIGEST)
    assert image_problem(IMAGE, REGISTRY, "lab", "sweep-0") == ""


@pytest.mark.parametrize("reference", FORGED.values(), ids=FORGED)
def test_another_form_is_refused(reference: str) -> None:
    with pytest.raises(ValueError, match="is not a checkpoint image"):
        ImageReference.parse(reference)


@pytest.mark.parametrize("reference", [*FORGED.values(), *WRONG.values()], ids=[*FORGED, *WRONG])
def test_a_trial_continues_only_from_its_own_image(reference: str) -> None:
    assert image_problem(reference, REGISTRY, "lab", "sweep-0")


def test_without_a_registry_no_image_is_accepted() -> None:
    assert "agent.checkpointRegistry" in image_problem(IMAGE, "", "lab", "sweep-0")


@given(st.text(alphabet="ab-./@:%0", max_size=40))
def test_what_is_accepted_names_exactly_its_repository(middle: str) -> None:
    try:
        image = ImageReference.parse(f"{REGISTRY}/podium-checkpoints/{middle}@{DIGEST}")
    except ValueError:
        return
    assert image.repository == f"podium-checkpoints/{middle}"
    assert ".." not in middle
    assert middle.count("/") == 1
