"""Arguments of `kubectl get`, the requests that they cause, and retries."""

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
        ("jobset t-0-0", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/t-0-0"),
        ("pods -n podium-system", "/api/v1/namespaces/podium-system/pods"),
        ("pods -l podium.dev/job=a", "/api/v1/namespaces/default/pods?labelSelector=podium.dev%2Fjob%3Da"),
        ("events --field-selector a=b,c=d", "/api/v1/namespaces/default/events?fieldSelector=a%3Db%2Cc%3Dd"),
    ],
)
def test_arguments_of_kubectl_give_a_path(words: str, path: str) -> None:
    assert kube_reads.path_of(*words.split()) == path


@pytest.mark.parametrize("words", ["secrets", "pods -A", "pods --all-namespaces", "pods a b"])
def test_unsupported_arguments_are_rejected(words: str) -> None:
    with pytest.raises(SystemExit):
        kube_reads.path_of(*words.split())


def make_reader(monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, str]) -> Any:
    remaining = list(answers)
    monkeypatch.setattr(kube_reads, "PAUSE", 0)
    monkeypatch.setattr(kube_reads, "ApiClient", lambda *_: SimpleNamespace(get=lambda *_, **__: remaining.pop(0)))
    cluster: Any = SimpleNamespace(spec=SimpleNamespace(port=1), paths=SimpleNamespace(pki=None))
    return kube_reads.ApiReader(cluster)


def test_requests_are_retried_while_the_server_is_busy_or_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = make_reader(monkeypatch, (0, "refused"), (429, "later"), (503, "later"), (200, '{"items": []}'))
    assert reader.get("pods") == {"items": []}


def test_a_missing_object_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match=r"GET /api/v1/namespaces/default/pods/a: 404 no pod a"):
        make_reader(monkeypatch, (404, "no pod a")).get("pod", "a")


def test_an_unreachable_server_fails_after_the_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_reads, "RETRY_SECONDS", -1.0)
    with pytest.raises(RuntimeError, match=r"GET /api/v1/nodes: 0 refused"):
        make_reader(monkeypatch, (0, "refused"), (200, "{}")).get("nodes")
