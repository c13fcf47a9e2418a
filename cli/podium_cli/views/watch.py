"""`podium watch` on a terminal: header, progress, a line per GPU, the trials. Pure: JobPicture -> rich renderable."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from podium_cli.job_picture import JobPicture
from podium_cli.views import additional_metrics as observed
from podium_cli.views import formatting as texts
from podium_core.domain.phase import TrialPhase
from podium_core.schema.gpunode import GPUNode, GpuStatus, TrialState
from podium_core.schema.trial import HyperParamTrial

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
STALE_AFTER = 90.0  # seconds without a word (bookmarks come once a minute) before the header says so


def view(
    picture: JobPicture, *, rows: int | None = None, silent_for: float = 0.0, metrics: bool = False
) -> RenderableType:
    """The whole screen; `rows` is how many trials the terminal holds, `silent_for` the age of what is shown, `metrics`
    whether each additional metric has a column.
    """
    parts: list[RenderableType] = [header(picture, silent_for), progress(picture)]
    if picture.gpus:
        parts.append(gpu_lines(picture))
    parts.append(trial_table(picture, rows, observed.names(picture.job) if metrics else ()))
    return Group(*parts)


def header(picture: JobPicture, silent_for: float = 0.0) -> Panel:
    job, status = picture.job, picture.job.status
    line = Text(status.phase, style=JOB_STYLE.get(status.phase, "bold"))
    if status.reason:
        line.append(f"  {texts.clean(status.reason)}", style="dim")
    if status.message:
        line.append(f"  {texts.clean(status.message)}", style="dim")
    objective = job.spec.objective
    second = Text(f"{objective.metric} ({objective.direction.value})  ")
    best = picture.best
    if best is None or best.status.best is None:
        second.append("no value yet", style="dim")
    else:
        second.append(f"best {texts.number(best.status.best.value)}", style="bold")
        second.append(f" by {best.metadata.name} at step {texts.step(best.status.best.step)}  ")
        second.append(texts.parameters(best.spec.parameters), style="cyan")
    third = Text(f"policy {job.spec.policy.name}  GPU-hours {status.gpu_hours:.3f}  suspensions {status.suspensions}")
    third.append(f"  for {texts.since(status.started_at, status.finished_at or picture.now)}")
    if silent_for > STALE_AFTER:
        third.append(f"  no word from the API server for {texts.duration(silent_for)}", style="bold yellow")
    for text in (line, second, third):  # one line each, so that the table knows what is left of the screen
        text.no_wrap, text.overflow = True, "ellipsis"
    title = Text(f"{job.metadata.namespace}/{job.metadata.name}", style="bold")
    return Panel(Group(line, second, third), title=title, title_align="left", padding=(0, 1))


def progress(picture: JobPicture) -> RenderableType:
    """Trials that ended, and the fraction of those under way (so that the bar moves between two ends)."""
    spec, status = picture.job.spec, picture.job.status
    line = Table.grid(padding=(0, 1), expand=True)
    line.add_column(no_wrap=True)
    line.add_column(ratio=1)
    line.add_column(no_wrap=True)
    line.add_row(
        Text(f" {picture.done}/{texts.count(spec.trials.max, 'trial')}"),
        ProgressBar(total=1.0, completed=fraction_done(picture), complete_style="green", finished_style="blue"),
        Text(f"{100 * fraction_done(picture):.0f} %  {eta_text(picture)} "),
    )
    return line if status.phase != "Refused" else Text(" nothing was started", style="dim")


def fraction_done(picture: JobPicture) -> float:
    if picture.job.status.phase == "Succeeded":
        return 1.0
    spec = picture.job.spec.trials
    total = float(picture.done)
    for trial in picture.trials:
        step = trial.status.last_step
        if trial.status.finished_at is None and step is not None and spec.max_steps:
            total += min(step / spec.max_steps, 1.0) * 0.99
    return min(total / spec.max, 1.0)


def eta_text(picture: JobPicture) -> str:
    status = picture.job.status
    if status.finished_at is not None:
        return f"took {texts.since(status.started_at, status.finished_at)}"
    if status.eta is None:
        return "ETA unknown"
    left = (status.eta - picture.now).total_seconds()
    return f"ETA {texts.duration(left)}" if left >= 1 else "any moment now"


def gpu_lines(picture: JobPicture) -> Table:
    table = Table(box=None, padding=(0, 1), show_header=True, header_style="dim", expand=True)
    for name in ("GPU", "HOLDER", "FOR", "UTIL", "MEMORY GiB", "WAITING"):
        table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=1 if name == "WAITING" else None)
    for node, gpu in picture.gpus:
        holder = gpu.holder
        table.add_row(
            Text(f"{node.metadata.name}/{gpu.index}", style=HEALTH_STYLE.get(gpu.health, "yellow")),
            Text(holder.trial, style="bold green") if holder else Text("nobody", style="dim"),
            Text(texts.since(holder.since, picture.now) if holder else ""),
            utilization(gpu.sm_utilization),
            Text(f"{texts.gibibytes(gpu.memory_used)}/{texts.gibibytes(gpu.memory_total)}"),
            waiting(node, gpu),
        )
    return table


def utilization(value: float) -> Text:
    width = 8
    filled = round(max(0.0, min(value, 100.0)) / 100 * width)
    return Text("█" * filled, style="green") + Text("░" * (width - filled), style="dim") + Text(f" {value:3.0f} %")


def waiting(node: GPUNode, gpu: GpuStatus) -> Text:
    """Who else has a share of this GPU, in the order in which they follow."""
    if node.spec.released:
        return Text("released by `podium thaw`: nothing is suspended here", style="yellow")
    if gpu.health == "Unhealthy":
        return Text(f"unhealthy: {texts.clean(gpu.health_reason) or 'no reason given'}", style="bold red")
    order = next((entry.run_queue for entry in node.spec.gpus if entry.uuid == gpu.uuid), [])
    place = {entry.uid: position for position, entry in enumerate(order)}
    others = [trial for trial in gpu.trials if gpu.holder is None or trial.uid != gpu.holder.uid]
    others.sort(key=lambda trial: (place.get(trial.uid, len(place)), trial.trial))
    text = Text(f"{len(others)}" if others else "0", style="" if others else "dim")
    for trial in others:
        text.append(f"  {trial.trial}", style="yellow" if trial.state is TrialState.SUSPENDED else "dim")
    return text


def trial_table(picture: JobPicture, rows: int | None = None, metrics: Sequence[str] = ()) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold", expand=True)
    figures = ("RANK", "STEP", "VALUE", "BEST", *map(texts.clean, metrics))
    for name in ("TRIAL", "PHASE", "GPU", *figures, "WHY"):
        right = name in figures
        table.add_column(
            Text(name),
            justify="right" if right else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if name == "WHY" else None,
        )
    shown = picture.by_rank if rows is None else picture.by_rank[: max(rows, 1)]
    for trial in shown:
        table.add_row(*trial_row(picture, trial, metrics))
    hidden = len(picture.by_rank) - len(shown)
    if hidden > 0:
        table.add_row(Text(f"and {hidden} more", style="dim"))
    return table


def trial_row(picture: JobPicture, trial: HyperParamTrial, metrics: Sequence[str] = ()) -> tuple[Text, ...]:
    status = trial.status
    is_best = picture.best is not None and picture.best.metadata.name == trial.metadata.name
    return (
        Text(trial.metadata.name, style="bold" if is_best else ""),
        Text(status.phase.value, style=PHASE_STYLE.get(status.phase, "dim")),
        Text(" ".join(picture.gpu_name(uuid) for uuid in status.gpus) or texts.NOTHING),
        Text(texts.NOTHING if status.rank is None else str(status.rank)),
        Text(texts.step(status.last_step)),
        Text(texts.number(status.last_value)),
        Text(texts.number(status.best.value if status.best else None), style="bold cyan" if is_best else ""),
        *(Text(observed.latest(trial, metric)) for metric in metrics),
        Text(why(trial), style="dim"),
    )


def why(trial: HyperParamTrial) -> str:
    """The sentence where there is one, led by its code."""
    reason, message = texts.clean(trial.status.reason), texts.clean(trial.status.message)
    return f"{reason}: {message}" if reason and message else reason or message
