"""GPU-seconds by namespace and queue, as the operator's counter has them."""

from __future__ import annotations

from dataclasses import replace

from podium_core.domain.gpu_queue import QueueView
from podium_core.domain.snapshot import Snapshot
from podium_core.testing.builders import make_gpu, make_job, make_trial
from podium_operator.metrics import Metrics
from podium_operator.queues.controller import MAX_UNSEEN_SECONDS, GpuMeter, held_gpus

JOBS = (make_job("a", queue="team"), make_job("b"))
TRIALS = tuple(make_trial(0, job=job.key.name) for job in JOBS)
GPUS = (
    *[make_gpu(f"GPU-{number}", holder=TRIALS[0].key) for number in range(2)],
    make_gpu("GPU-2", holder=TRIALS[1].key),
    make_gpu("GPU-3"),
)
SNAPSHOT = Snapshot(now=1000.0, jobs=JOBS, trials=TRIALS, gpus=GPUS)
NAMESPACE = JOBS[0].key.namespace


def counted(metrics: Metrics, queue: str = "") -> float:
    labels = {"namespace": NAMESPACE, "queue": queue}
    return metrics.registry.get_sample_value("podium_gpu_seconds_total", labels) or 0.0


def test_gpus_by_namespace_and_queue() -> None:
    assert held_gpus(SNAPSHOT) == {(NAMESPACE, ""): 3}
    with_queues = replace(SNAPSHOT, queues=(QueueView("team"), QueueView("default")))
    assert held_gpus(with_queues) == {(NAMESPACE, "team"): 2, (NAMESPACE, "default"): 1}


def test_the_counter_grows_by_what_was_held_since_the_last_plan() -> None:
    metrics = Metrics()
    meter = GpuMeter(metrics)
    meter.record(SNAPSHOT)
    assert counted(metrics) == 0.0, "it is not known what was held before"
    meter.record(replace(SNAPSHOT, now=1002.0, gpus=GPUS[2:]))
    assert counted(metrics) == 6.0
    meter.record(replace(SNAPSHOT, now=1012.0))
    assert counted(metrics) == 16.0


def test_an_unobserved_pause_and_a_clock_that_goes_back_count_nothing() -> None:
    metrics = Metrics()
    meter = GpuMeter(metrics)
    for now in (1000.0, 1000.0 + MAX_UNSEEN_SECONDS + 1.0, 500.0, 500.0):
        meter.record(replace(SNAPSHOT, now=now))
    assert counted(metrics) == 0.0
