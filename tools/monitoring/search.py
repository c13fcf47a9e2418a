"""Dashboard `search`: how far is a search, what does it use, and what does it lose by switching?"""

from __future__ import annotations

from typing import Any

from monitoring.dashboard import dashboard, variable
from monitoring.layout import Row
from monitoring.panels import Chart, Query, Style, curves, number

CHOSEN = 'namespace=~"$namespace", job_name=~"$job_name"'
LEGEND = "{{namespace}}/{{job_name}}"


def build() -> dict[str, Any]:
    """Return the dashboard."""
    rows = [
        Row("Now", [number(chart) for chart in NOW], across=4, height=4),
        Row("Progress", [curves(chart) for chart in PROGRESS], across=2),
        Row("Cost", [curves(chart) for chart in COST], across=2),
    ]
    variables = [
        variable("namespace", "Namespace", "podium_job_max_trials"),
        variable("job_name", "Job", 'podium_job_max_trials{namespace=~"$namespace"}'),
    ]
    text = "Progress and cost of searches that have not ended, or ended in the last five minutes."
    return dashboard("search", "Search", text, rows, variables)


def by_job(selector: str) -> str:
    """Return the sum for each job, given a selector without the choice of jobs."""
    name, _, more = selector.removesuffix("}").partition("{")
    return f"sum by (namespace, job_name) ({name}{{{', '.join(filter(None, [CHOSEN, more]))}}})"


ENDED = by_job('podium_job_trials{state=~"succeeded|failed"}')
NOW = (
    Chart(
        "Trials that ended",
        "Trials that succeeded or failed, as a part of trials.max. A trial that was stopped early does not count.",
        (Query(f"{ENDED} / {by_job('podium_job_max_trials')}", LEGEND),),
        Style("percentunit"),
    ),
    Chart(
        "Best value",
        "Best value of the objective so far.",
        (Query(by_job("podium_job_best_value"), LEGEND),),
    ),
    Chart(
        "Expected end",
        "When the search ends if its trials continue at their present pace. Unknown at first.",
        (Query(f"{by_job('podium_job_expected_end_timestamp_seconds')} * 1000", LEGEND),),
        Style("dateTimeFromNow"),
    ),
    Chart(
        "Failed trials",
        "Trials that failed after all retries.",
        (Query(by_job('podium_job_trials{state="failed"}'), LEGEND),),
        Style(limit=1),
    ),
)
PROGRESS = (
    Chart(
        "Best value over time",
        "Best value of the objective so far.",
        (Query(by_job("podium_job_best_value"), LEGEND),),
        Style(least=None),
    ),
    Chart(
        "Trials by state",
        "Trials of the chosen jobs. Suspended trials keep their progress and wait for their next time slice.",
        (Query(f"sum by (state) (podium_job_trials{{{CHOSEN}}})", "{{state}}"),),
        Style(stacked=True),
    ),
    Chart("Trials that ended over time", "Trials that succeeded or failed.", (Query(ENDED, LEGEND),)),
    Chart(
        "GPUs in use",
        "GPU-seconds of training in each second: how many GPUs the trials of a job held on average.",
        (
            Query(
                "clamp_min(sum by (namespace, job_name) "
                f'(deriv(podium_job_gpu_seconds{{{CHOSEN}, use="training"}}[$__rate_interval])), 0)',
                LEGEND,
            ),
        ),
    ),
)
COST = (
    Chart(
        "GPU time",
        "GPU time of all trials so far.",
        (Query(by_job('podium_job_gpu_seconds{use="training"}'), LEGEND),),
        Style("s"),
    ),
    Chart(
        "Part of the GPU time that switches take",
        "Time of suspending and resuming, as a part of the GPU time. The scheduler keeps it to a few percent.",
        (
            Query(
                f"""{by_job('podium_job_gpu_seconds{use="switching"}')} / {by_job("podium_job_gpu_seconds")}""",
                LEGEND,
            ),
        ),
        Style("percentunit"),
    ),
    Chart("Suspensions", "Suspensions of all trials so far.", (Query(by_job("podium_job_suspensions"), LEGEND),)),
    Chart(
        "Lost work by namespace",
        "GPU time that trials repeated, because a pod ended before its trial could checkpoint.",
        (
            Query(
                'sum by (namespace) (increase(podium_lost_work_gpu_seconds_total{namespace=~"$namespace"}[$__range]))',
                "{{namespace}}",
            ),
        ),
        Style("s"),
    ),
)
