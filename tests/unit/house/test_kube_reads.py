"""The words of `kubectl get`, and what a server is asked for by them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import kube_reads
import pytest

ROOT = "/apis/podium.dev/v1alpha1"


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("gpunodes", f"{ROOT}/gpunodes"),
        ("gpunode node-1", f"{ROOT}/gpunodes/node-1"),
        ("hyperparamjob digits", f"{ROOT}/namespaces/default/hyperparamjobs/digits"),
        ("hpt t-0", f"{ROOT}/namespaces/default/hyperparamtrials/t-0"),
        ("pods -n podium-system", "/api/v1/namespaces/podium-system/pods"),
        ("pods -l podium.dev/job=a", "/api/v1/namespaces/default/pods?labelSelector=podium.dev%2Fjob%3Da"),
        ("events --field-selector a=b,c=d", "/api/v1/namespaces/default/events?fieldSelector=a%3Db%2Cc%3Dd"),
    ],
)
def test_words_of_kubectl(words: str, path: str) -> None:
    assert kube_reads.path_of(*words.split()) == path


@pytest.mark.parametrize("words", ["secrets", "pods -A", "pods --all-namespaces", "pods a b"])
def test_words_that_are_not_known_are_refused(words: str) -> None:
    with pytest.raises(SystemExit):
        kube_reads.path_of(*words.split())


def reads(monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, str]) -> Any:
    left = list(answers)
    monkeypatch.setattr(kube_reads, "PAUSE", 0)
    monkeypatch.setattr(kube_reads, "ApiClient", lambda *_: SimpleNamespace(get=lambda *_, **__: left.pop(0)))
    cluster: Any = SimpleNamespace(spec=SimpleNamespace(port=1), paths=SimpleNamespace(pki=None))
    return kube_reads.Reads(cluster)


def test_a_server_that_is_busy_or_away_for_a_moment_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = reads(monkeypatch, (0, "refused"), (429, "later"), (503, "later"), (200, '{"items": []}'))
    assert asked.get("pods") == {"items": []}


def test_what_is_not_there_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match=r"GET /api/v1/namespaces/default/pods/a: 404 no pod a"):
        reads(monkeypatch, (404, "no pod a")).get("pod", "a")


def test_a_server_that_stays_away_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_reads, "PATIENCE", -1.0)
    with pytest.raises(RuntimeError, match=r"GET /api/v1/nodes: 0 refused"):
        reads(monkeypatch, (0, "refused"), (200, "{}")).get("nodes")
