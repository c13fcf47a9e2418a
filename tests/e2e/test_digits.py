"""The example search under the default policy, checked by cgroups, work.log, logs of containerd and the API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
EPOCHS = 40
TRIALS = 12


def test_the_search_succeeds_with_every_trial(digits: Any) -> None:
    assert digits.job["status"]["phase"] == "Succeeded", digits.job["status"]["message"]
    phases = {t["metadata"]["name"]: t["status"]["phase"] for t in digits.trials}
    assert phases == {f"digits-{number}": "Succeeded" for number in range(TRIALS)}


def test_operator_agents_and_extender_were_killed_and_no_pod_was_created_twice(digits: Any) -> None:
    assert digits.killed == {"operator": 1, "agent": 2, "extender": 1}
    for trial in digits.trials:
        name, last = trial["metadata"]["name"], trial["status"]["attempt"]
        assert {f"{name}-{attempt}" for attempt in range(last + 1)} <= digits.pods.keys() | {trial["status"]["pod"]}
        for attempt in range(last):
            # the kubelet refuses a pod that is bound while the device plugin of the killed agent is away
            assert digits.pods[f"{name}-{attempt}"]["status"]["reason"] == "UnexpectedAdmissionError"


def test_two_trials_never_worked_on_one_gpu_at_the_same_time(site: Any, digits: Any) -> None:
    """work.log has samples of 20 ms; only certain overlaps count (see agent/driver/README.md)."""
    assert len({item.gpu for item in digits.work}) == 2
    assert len({item.container for item in digits.work}) >= TRIALS
    pairs = site.evidence.overlaps(digits.work)
    assert not pairs, f"{len(pairs)} overlaps, the first: {pairs[0]}"


def test_trials_were_suspended_and_resumed(site: Any, digits: Any) -> None:
    assert site.evidence.resumptions(digits.work) >= 6, "by the driver's record"
    # how many at once depends on the machine: if a start takes long, the first trials end before the last ones start
    assert digits.most_frozen >= 2, "in the cgroups during the search"
    assert digits.job["status"]["suspensions"] >= 6, "reported by Podium"


def test_no_step_is_missing_or_repeated(site: Any, digits: Any) -> None:
    for trial in digits.trials:
        log = site.log_of(digits.pods[trial["status"]["pod"]], "train")
        points = site.evidence.printed(log, "val_acc", "epoch")
        assert [step for step, _ in points] == list(range(1, EPOCHS + 1)), trial["metadata"]["name"]
        kept = {point["step"]: point["value"] for point in trial["status"]["curve"]["points"]}
        assert kept.items() <= dict(points).items(), "the stored curve has the values of the log, to the last digit"
        assert trial["status"]["lastStep"] == EPOCHS
        expected = site.evidence.summary(site.evidence.printed(log, "loss", "epoch"))
        assert trial["status"]["additionalMetrics"] == [{"metric": "loss", **expected}]


def test_the_best_trial_is_bit_identical_to_running_alone(site: Any, digits: Any) -> None:
    best = digits.job["status"]["best"]
    together = digits.pods[next(t["status"]["pod"] for t in digits.trials if t["metadata"]["name"] == best["trial"])]
    command = together["spec"]["containers"][0]["command"]
    alone = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "alone"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "train", "image": "localhost/podium-digits:dev", "command": command}],
        },
    }
    site.kubectl("apply", "-f", "-", stdin=json.dumps(alone))
    site.kubectl("wait", "pod/alone", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=180s", timeout=190)
    pod = site.get("pod", "alone")
    shared = site.evidence.printed(site.log_of(together, "train"), "val_acc", "epoch")
    assert site.evidence.printed(site.log_of(pod, "train"), "val_acc", "epoch") == shared
    assert best["value"] == max(value for _, value in shared)


def test_kubectl_and_podium_show_the_results(site: Any, digits: Any, tmp_path: Path) -> None:
    table = site.kubectl("get", "hyperparamjob", "digits")
    assert "Succeeded" in table
    assert f"{TRIALS}/{TRIALS}" in table
    summary = site.podium("summary", "digits")
    assert digits.job["status"]["best"]["trial"] in summary
    page = tmp_path / "report.html"
    site.podium("report", "digits", "-o", str(page))
    text = page.read_text()
    for trial in digits.trials:
        assert trial["metadata"]["name"] in text


def test_events_report_the_search_and_every_run_queue_was_applied(site: Any, digits: Any) -> None:
    events = site.kubectl("get", "events", "--field-selector", "involvedObject.name=digits")
    assert f"All {TRIALS} trials ended: {TRIALS} succeeded" in events
    for node in site.objects("gpunodes"):
        assert node["spec"]["epoch"] == node["status"]["observedEpoch"]
        for gpu in node["status"]["gpus"]:
            assert gpu.get("trials", []) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"metrics": {"source": "stdout", "format": "text", "filter": "(broken", "stepKey": "epoch"}}, "InvalidFilter"),
        ({"policy": {"name": "hermes", "settings": {"speed": 3}}}, "UnknownPolicySetting"),
    ],
)
def test_an_invalid_job_that_only_the_operator_can_detect_starts_nothing(
    site: Any, change: dict[str, Any], reason: str
) -> None:
    manifest = site.example("wrong")
    manifest["spec"] |= change
    site.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    try:
        status = site.until("Refused", lambda: _refused(site.job("wrong")), 30)
        accepted = next(c for c in status["conditions"] if c["type"] == "Accepted")
        assert accepted["status"] == "False"
        assert accepted["reason"] == reason
        assert "spec." in accepted["message"], "the message names the field"
        assert site.objects("hyperparamtrials", "-l", "podium.dev/job=wrong") == []
    finally:
        site.kubectl("delete", "hyperparamjob", "wrong")


def _refused(job: dict[str, Any]) -> dict[str, Any] | None:
    status: dict[str, Any] = job.get("status", {})
    return status if status.get("phase") == "Refused" else None
