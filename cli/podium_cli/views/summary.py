"""What is said at the end of a search: best trial, GPU-seconds by use, suspensions. Pure."""

from __future__ import annotations

from podium_cli.report.model import JobReport
from podium_cli.views import formatting as texts


def last_line(report: JobReport, written_to: str) -> str:
    """The best trial and where the report is: the line that `make demo` ends with."""
    best = report.best
    if best is None:
        return f"no trial has reported {report.metric} yet; report: {written_to}"
    value = f"{report.metric} {texts.number(best.best)} at {report.step_key} {texts.step(best.best_step)}"
    return f"best trial {best.name}: {value} with {texts.parameters(dict(best.parameters))}; report: {written_to}"


def lines(report: JobReport) -> list[str]:
    use, switches = report.use, report.switches
    state = f"{report.namespace}/{report.name} {report.phase}"
    told = ": ".join(texts.clean(part) for part in (report.reason, report.message) if part)
    found = [f"job          {state} after {texts.duration(report.span)}" + (f" ({told})" if told else "")]
    if report.best is None:
        found.append(f"best         no trial has reported {report.metric}")
    else:
        value = (
            f"{report.metric} {texts.number(report.best.best)} at {report.step_key} {texts.step(report.best.best_step)}"
        )
        found.append(f"best         {report.best.name}  {value}")
        found += [f"also         {told}" for told in report.best.also]
        found.append(f"parameters   {texts.parameters(dict(report.best.parameters))}")
    found.append(f"trials       {report.done} of {report.max_trials} done")
    shares = (("training", use.training), ("switching", use.switching), ("idle", use.idle))
    spent = "  ".join(f"{name} {seconds:.1f} ({texts.percent(seconds, use.total)})" for name, seconds in shares)
    found.append(f"GPU-seconds  {spent}  on {texts.count(len(report.lanes), 'GPU')}")
    cost = ""
    if switches.recorded:
        cost = f", each p50 {texts.duration(switches.p50)}, p99 {texts.duration(switches.p99)} (out and in)"
        if switches.recorded < switches.count:
            cost += f" over the {switches.recorded} on record"
    found.append(f"suspensions  {switches.count}{cost}")
    return found
