"""Summary of a search in a few lines: best trial, GPU-seconds by use, suspensions."""

from __future__ import annotations

from typing import Any

from podium_cli.structured import time
from podium_views import formatting, front
from podium_views.model import JobReport
from podium_views.progress import lowered


def last_line(report: JobReport, written_to: str) -> str:
    """Return one line with the best trial and the file of the report; `make demo` ends with it."""
    best, metric, several = report.best, report.metric, report.several
    if several is not None and several.front:
        return f"{front.line(several.front)}; report: {written_to}"
    if best is None:
        return f"no trial has reported {metric.name} yet; report: {written_to}"
    value = f"{metric.name} {formatting.number(best.best)} at {metric.step_key} {formatting.step(best.best_step)}"
    return f"best trial {best.name}: {value} with {formatting.parameters(dict(best.parameters))}; report: {written_to}"


def lines(report: JobReport) -> list[str]:
    """Return the lines of `podium summary`."""
    job, metric, use, switches = report.job, report.metric, report.use, report.switches
    state = f"{job.namespace}/{job.name} {job.phase}"
    why = formatting.cause(job.reason, job.message)
    output = [f"job          {state} after {formatting.duration(report.period.span)}" + (f" ({why})" if why else "")]
    if report.several is not None:
        output.append(f"objectives   {report.several.text}")
        output.append(f"front        {front.line(report.several.front)}")
    elif report.best is None:
        output.append(f"best         no trial has reported {metric.name}")
    else:
        at = f"at {metric.step_key} {formatting.step(report.best.best_step)}"
        value = f"{metric.name} {formatting.number(report.best.best)} {at}"
        output.append(f"best         {report.best.name}  {value}")
        output += [f"metric       {sentence}" for sentence in report.best.last.metric_sentences]
        output.append(f"parameters   {formatting.parameters(dict(report.best.parameters))}")
    output.append(f"trials       {job.done} of {job.total} ended{lowered(job.total, job.max_trials)}")
    uses = (("training", use.training), ("switching", use.switching), ("idle", use.idle))
    spent = "  ".join(f"{name} {seconds:.1f} ({formatting.percent(seconds, use.total)})" for name, seconds in uses)
    output.append(f"GPU-seconds  {spent}  on {formatting.count(len(report.lanes), 'GPU')}")
    cost = ""
    if switches.recorded:
        cost = f", suspend and resume p50 {formatting.duration(switches.p50)}, p99 {formatting.duration(switches.p99)}"
        if switches.recorded < switches.count:
            cost += f" over the last {switches.recorded}"
    output.append(f"suspensions  {switches.count}{cost}")
    return output


def data(report: JobReport) -> dict[str, Any]:
    """Return the same for programs; unknown values are null."""
    job, use, switches, best = report.job, report.use, report.switches, report.best
    return {
        "namespace": job.namespace,
        "name": job.name,
        "phase": job.phase,
        "reason": job.reason,
        "message": job.message,
        "startedAt": time(report.period.origin),
        "seconds": report.period.span,
        "metric": report.metric.name,
        "best": best
        and {
            "trial": best.name,
            "value": best.best,
            "step": best.best_step,
            "parameters": dict(best.parameters),
        },
        "trials": {"done": job.done, "max": job.max_trials},
        "gpus": len(report.lanes),
        "gpuSeconds": {"training": use.training, "switching": use.switching, "idle": use.idle},
        "suspensions": {
            "count": switches.count,
            "recorded": switches.recorded,
            "p50Seconds": switches.p50,
            "p99Seconds": switches.p99,
        },
    }
