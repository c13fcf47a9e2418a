"""Output of `podium watch`: the live view of a terminal, and one line per change without a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from podium_core.domain.phase import TrialPhase
from podium_core.schema.gpunode import GPUNode, GpuStatus, SlotState
from podium_core.schema.trial import HyperParamTrial
from podium_views import additional_metrics, formatting, front
from podium_views.decision import newest_decision
from podium_views.job_snapshot import JobSnapshot, present_rank, run_queue_of
from podium_views.progress import eta_text, fraction_done, lowered, why

PHASE_STYLE = {
    TrialPhase.RUNNING: "bold green",
    TrialPhase.SUSPENDING: "yellow",
    TrialPhase.SUSPENDED: "yellow",
    TrialPhase.RESUMING: "cyan",
    TrialPhase.SUCCEEDED: "blue",
    TrialPhase.EARLY_STOPPED: "blue",
    TrialPhase.FAILED: "bold red",
    TrialPhase.KILLED: "red",
}
JOB_STYLE = {"Running": "bold green", "Succeeded": "bold blue", "Failed": "bold red", "Refused": "bold red"}
HEALTH_STYLE = {"Healthy": "green", "Unhealthy": "bold red"}
STALE_AFTER = 90.0  # seconds without an event before the header warns; bookmarks come once a minute


def view(
    snapshot: JobSnapshot, *, rows: int | None = None, silent_for: float = 0.0, metrics: bool = False
) -> RenderableType:
    """Return the whole screen.

    Arguments:
        snapshot: State of the job.
        rows: Number of trials that the terminal can show; None for all.
        silent_for: Age of the snapshot in seconds.
        metrics: Whether each additional metric has a column.
    """
    parts: list[RenderableType] = [header(snapshot, silent_for), progress(snapshot), decision_line(snapshot)]
    if snapshot.gpus:
        parts.append(gpu_lines(snapshot))
    parts.append(trial_table(snapshot, rows, additional_metrics.names(snapshot.job) if metrics else ()))
    return Group(*parts)


def header(snapshot: JobSnapshot, silent_for: float = 0.0) -> Panel:
    """Return phase, best value and totals of the job."""
    job, status = snapshot.job, snapshot.job.status
    line = Text(status.phase, style=JOB_STYLE.get(status.phase, "bold"))
    if status.reason:
        line.append(f"  {formatting.clean(status.reason)}", style="dim")
    if status.message:
        line.append(f"  {formatting.clean(status.message)}", style="dim")
    objective = job.spec.objective
    best, several = snapshot.best, job.spec.objectives is not None
    metric = front.objectives(job.spec) if several else f"{objective.metric} ({objective.direction.value})"
    second = Text(f"{metric}  ")
    if several:
        second.append(front.line(snapshot.front), style="bold" if snapshot.front else "dim")
    elif best is None or best.status.best is None:
        second.append("no value yet", style="dim")
    else:
        second.append(f"best {formatting.number(best.status.best.value)}", style="bold")
        second.append(f" by {best.metadata.name} at step {formatting.step(best.status.best.step)}  ")
        second.append(formatting.parameters(best.spec.parameters), style="cyan")
    third = Text(f"policy {job.spec.policy.name}  GPU-hours {status.gpu_hours:.3f}  suspensions {status.suspensions}")
    third.append(f"  for {formatting.since(status.started_at, status.finished_at or snapshot.now)}")
    if silent_for > STALE_AFTER:
        third.append(f"  no event from the API server for {formatting.duration(silent_for)}", style="bold yellow")
    for text in (line, second, third):  # one line each, so that the height of the header is known
        text.no_wrap, text.overflow = True, "ellipsis"
    title = Text(f"{job.metadata.namespace}/{job.metadata.name}", style="bold")
    return Panel(Group(line, second, third), title=title, title_align="left", padding=(0, 1))


def progress(snapshot: JobSnapshot) -> RenderableType:
    """Return the progress bar: the trials that ended, and the completed part of the others."""
    spec, status, total = snapshot.job.spec, snapshot.job.status, snapshot.total
    line = Table.grid(padding=(0, 1), expand=True)
    line.add_column(no_wrap=True)
    line.add_column(ratio=1)
    line.add_column(no_wrap=True)
    line.add_row(
        Text(f" {snapshot.done}/{formatting.count(total, 'trial')}{lowered(total, spec.trials.max)}"),
        ProgressBar(total=1.0, completed=fraction_done(snapshot), complete_style="green", finished_style="blue"),
        Text(f"{100 * fraction_done(snapshot):.0f} %  {eta_text(snapshot)} "),
    )
    return line if status.phase != "Refused" else Text(" no trial was started", style="dim")


def decision_line(snapshot: JobSnapshot) -> Text:
    """Return the newest scheduling decision with its reason, on one line."""
    sentence = newest_decision(snapshot)
    line = Text(f" {sentence or 'No trial has received a GPU yet.'}", style="" if sentence else "dim")
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def gpu_lines(snapshot: JobSnapshot) -> Table:
    """Return a line for each GPU: holder, utilisation, memory and the waiting trials."""
    table = Table(box=None, padding=(0, 1), show_header=True, header_style="dim", expand=True)
    for name in ("GPU", "HOLDER", "FOR", "UTIL", "MEMORY GiB", "WAITING"):
        table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=1 if name == "WAITING" else None)
    for node, gpu in snapshot.gpus:
        holder = gpu.holder
        table.add_row(
            Text(f"{node.metadata.name}/{gpu.index}", style=HEALTH_STYLE.get(gpu.health, "yellow")),
            Text(holder.trial, style="bold green") if holder else Text("none", style="dim"),
            Text(formatting.since(holder.since, snapshot.now) if holder else ""),
            utilization(gpu.sm_utilization),
            Text(formatting.memory_in_use(gpu.memory_used, gpu.memory_total)),
            waiting(node, gpu),
        )
    return table


def utilization(value: float) -> Text:
    """Return a utilisation in percent as a bar with the number."""
    width = 8
    filled = round(max(0.0, min(value, 100.0)) / 100 * width)
    return Text("█" * filled, style="green") + Text("░" * (width - filled), style="dim") + Text(f" {value:3.0f} %")


def waiting(node: GPUNode, gpu: GpuStatus) -> Text:
    """Return the number and the names of the other trials on this GPU, in the order of the run queue."""
    if node.spec.released:
        return Text("thawed by `podium thaw`: nothing is suspended here", style="yellow")
    if gpu.health == "Unhealthy":
        return Text(f"unhealthy: {formatting.clean(gpu.health_reason) or 'no reason given'}", style="bold red")
    queue = run_queue_of(node, gpu.uuid)
    positions = {entry.uid: position for position, entry in enumerate(queue)}
    others = [trial for trial in gpu.trials if gpu.holder is None or trial.uid != gpu.holder.uid]
    others.sort(key=lambda trial: (positions.get(trial.uid, len(positions)), trial.trial))
    text = Text(f"{len(others)}" if others else "0", style="" if others else "dim")
    for trial in others:
        text.append(f"  {trial.trial}", style="yellow" if trial.state is SlotState.SUSPENDED else "dim")
    return text


def trial_table(snapshot: JobSnapshot, rows: int | None = None, metrics: Sequence[str] = ()) -> Table:
    """Return the trials by rank; `rows` is the number shown, and a last line counts the others."""
    table = Table(box=None, padding=(0, 1), header_style="bold", expand=True)
    figures = ("RANK", "STEP", "VALUE", "BEST", *map(formatting.clean, metrics))
    for name in ("TRIAL", "PHASE", "GPU", *figures, "WHY"):
        right = name in figures
        table.add_column(
            Text(name),
            justify="right" if right else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if name == "WHY" else None,
        )
    shown = snapshot.by_rank if rows is None else snapshot.by_rank[: max(rows, 1)]
    for trial in shown:
        table.add_row(*trial_row(snapshot, trial, metrics))
    hidden = len(snapshot.by_rank) - len(shown)
    if hidden > 0:
        table.add_row(Text(f"and {hidden} more", style="dim"))
    return table


def trial_row(snapshot: JobSnapshot, trial: HyperParamTrial, metrics: Sequence[str] = ()) -> tuple[Text, ...]:
    """Return the cells of one trial."""
    status = trial.status
    is_best = snapshot.best is not None and snapshot.best.metadata.name == trial.metadata.name
    return (
        Text(trial.metadata.name, style="bold" if is_best else ""),
        Text(status.phase.value, style=PHASE_STYLE.get(status.phase, "dim")),
        Text(" ".join(snapshot.gpu_name(uuid) for uuid in status.gpus) or formatting.NOTHING),
        Text(formatting.NOTHING if (rank := present_rank(trial)) is None else str(rank)),
        Text(formatting.step(status.last_step)),
        Text(formatting.number(status.last_value)),
        Text(formatting.number(status.best.value if status.best else None), style="bold cyan" if is_best else ""),
        *(Text(additional_metrics.latest(trial, metric)) for metric in metrics),
        Text(why(trial), style="dim"),
    )


def changes(before: JobSnapshot | None, after: JobSnapshot) -> list[str]:
    """Return a line for each change from one snapshot to the next: job, trials, best value."""
    lines = [*_job_lines(before, after), *_trial_lines(before, after), *_best_lines(before, after)]
    stamp = after.now.strftime("%H:%M:%S")
    return [f"{stamp} {line}" for line in lines]


def _job_lines(before: JobSnapshot | None, after: JobSnapshot) -> list[str]:
    status = after.job.status
    old = before.job.status if before else None
    if old is not None and (old.phase, old.reason) == (status.phase, status.reason):
        return []
    cause = formatting.cause(status.reason, status.message)
    return [f"job {after.job.metadata.name} {status.phase}" + (f" ({cause})" if cause else "")]


def _trial_lines(before: JobSnapshot | None, after: JobSnapshot) -> list[str]:
    known = {trial.metadata.uid: trial.status.phase for trial in before.trials} if before else {}
    lines = []
    for trial in after.trials:
        status = trial.status
        old = known.get(trial.metadata.uid)
        if old is status.phase:
            continue
        reason = why(trial)
        arrow = f"{old.value} -> {status.phase.value}" if old else status.phase.value
        rank = f" rank {place}" if (place := present_rank(trial)) is not None else ""
        step = f" step {formatting.step(status.last_step)}" if status.last_step is not None else ""
        lines.append(f"{trial.metadata.name} {arrow}{rank}{step}" + (f" ({reason})" if reason else ""))
    return lines


def _best_lines(before: JobSnapshot | None, after: JobSnapshot) -> list[str]:
    if after.front:
        same = before is not None and before.front == after.front
        return [] if same else [front.line(after.front)]
    best = after.best
    if best is None or best.status.best is None:
        return []
    old = before.best if before else None
    if old is not None and old.status.best is not None and old.status.best.value == best.status.best.value:
        return []
    metric = after.job.spec.objective.metric
    value = formatting.number(best.status.best.value)
    improvement = f"new best {metric} {value} by {best.metadata.name} at step {formatting.step(best.status.best.step)}"
    trials = formatting.count(after.total, "trial")
    rest = f"({formatting.parameters(best.spec.parameters)}), {after.done}/{trials} ended"
    return [f"{improvement} {rest}"]
