"""Gauges of the operator: which jobs have metrics of their own, agents, refused pods, and lost work."""

from __future__ import annotations

from typing import Any

from operator_builders import NOW, make_cluster_state, make_job, make_node, make_trial, moment
from prometheus_client import generate_latest

from podium_core.domain.keys import TrialKey
from podium_core.planning.slots.gpu_reservations import Pool
from podium_operator.metrics import Metrics
from podium_operator.report import gauges
from podium_operator.report.gauges import LostWorkCounter

QUOTA = 'pods "a" is forbidden: exceeded quota: few, requested: pods=1, used: pods=0, limited: pods=0'


def page(metrics: Metrics) -> list[str]:
    return [line for line in generate_latest(metrics.registry).decode().splitlines() if "_created" not in line]


def running(name: str = "sweep", **more: Any) -> Any:
    return make_job(name, status={"phase": "Running", "startedAt": moment(), **more})


def test_a_job_has_metrics_of_its_own() -> None:
    metrics = Metrics()
    status = {
        "trials": {"running": 2, "succeeded": 1},
        "gpuSeconds": {"training": 50.0, "switching": 0.5},
        "suspensions": 7,
        "best": {"trial": "sweep-0", "value": -0.25, "step": 3},
        "eta": moment(60),
    }
    gauges.export(metrics, make_cluster_state(running(**status)), {})
    lines = page(metrics)
    job = 'job_name="sweep",namespace="lab"'
    for expected in (
        f'podium_job_trials{{{job},state="running"}} 2.0',
        f'podium_job_trials{{{job},state="failed"}} 0.0',
        f"podium_job_max_trials{{{job}}} 3.0",
        f'podium_job_gpu_seconds{{{job},use="switching"}} 0.5',
        f"podium_job_suspensions{{{job}}} 7.0",
        f"podium_job_best_value{{{job}}} -0.25",
        f"podium_job_expected_end_timestamp_seconds{{{job}}} 1.76000006e+09",
        'podium_jobs{phase="Running"} 1.0',
        "podium_jobs_shown 1.0",
    ):
        assert expected in lines


def test_a_job_that_is_gone_or_ended_long_ago_has_none() -> None:
    metrics = Metrics()
    gauges.export(metrics, make_cluster_state(running()), {})
    ended = make_job(status={"phase": "Succeeded", "finishedAt": moment(-gauges.LINGER_SECONDS)})
    for cluster in (make_cluster_state(ended), make_cluster_state()):
        gauges.export(metrics, cluster, {})
        assert not [line for line in page(metrics) if line.startswith("podium_job_")]
    assert "podium_jobs_shown 0.0" in page(metrics)


def test_jobs_that_have_not_ended_come_first_and_their_number_is_limited() -> None:
    recent = make_job("recent", status={"phase": "Failed", "startedAt": moment(50), "finishedAt": moment(-1)})
    refused = make_job("refused", status={"phase": "Refused"})
    jobs = [recent, refused, *(running(f"job-{number}") for number in range(gauges.MAX_JOBS - 1))]
    shown = gauges.shown(jobs, NOW)
    assert len(shown) == gauges.MAX_JOBS
    assert shown[-1] is recent
    shown = gauges.shown([*jobs, running("one-more")], NOW)
    assert len(shown) == gauges.MAX_JOBS
    assert recent not in shown


def test_an_agent_without_heartbeat_is_not_responsive() -> None:
    metrics = Metrics()
    cluster = make_cluster_state(make_node("a"), make_node("b"), unresponsive=("b",))
    gauges.export(metrics, cluster, {})
    lines = page(metrics)
    assert 'podium_operator_agent_responsive{node="a"} 1.0' in lines
    assert 'podium_operator_agent_responsive{node="b"} 0.0' in lines
    gauges.export(metrics, make_cluster_state(make_node("a")), {})
    assert not [line for line in page(metrics) if 'node="b"' in line], "a node that left the cluster is not silent"


def test_refused_pods_are_counted_by_cause() -> None:
    metrics = Metrics()
    trials = {TrialKey("lab", f"t-{number}", f"uid-{number}"): QUOTA for number in range(2)}
    trials[TrialKey("lab", "t-2", "uid-2")] = "a webhook said no"
    gauges.export_refused_pods(metrics, trials, {Pool("lab"): QUOTA})
    lines = page(metrics)
    assert 'podium_refused_pods{cause="quota",kind="trial",namespace="lab"} 2.0' in lines
    assert 'podium_refused_pods{cause="other",kind="trial",namespace="lab"} 1.0' in lines
    assert 'podium_refused_pods{cause="quota",kind="reservation",namespace="lab"} 1.0' in lines
    gauges.export_refused_pods(metrics, {}, {})
    assert not [line for line in page(metrics) if line.startswith("podium_refused_pods{")]


def test_only_work_lost_since_the_start_is_counted() -> None:
    metrics = Metrics()
    counter = LostWorkCounter(metrics)

    def trial(count: int, seconds: float) -> Any:
        return make_trial(lostWork={"count": count, "steps": 1.0, "gpuSeconds": seconds})

    counter.count([trial(2, 100.0)])
    assert 'podium_lost_work_total{namespace="lab"} 0.0' in page(metrics), "the series exists before the first loss"
    counter.count([trial(3, 112.5)])
    counter.count([trial(3, 112.5)])
    assert 'podium_lost_work_total{namespace="lab"} 1.0' in page(metrics)
    assert 'podium_lost_work_gpu_seconds_total{namespace="lab"} 12.5' in page(metrics)
    counter.count([])
    counter.count([trial(3, 112.5)])
    assert 'podium_lost_work_total{namespace="lab"} 1.0' in page(metrics)
