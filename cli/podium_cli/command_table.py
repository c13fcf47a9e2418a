"""Table of the commands: the module of `commands` that defines each of them, and a one-line summary.

`podium --help` shows this table without an import of those modules. They import nearly all of Podium, which takes most
of a second.
"""

from __future__ import annotations

from dataclasses import dataclass

LOCAL, OFFLINE = "Commands that run a search here", "Commands without a cluster"
READ, CHANGE = "Commands that read a cluster", "Commands that change a cluster"


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """One command in the list of commands. `summary` is the first sentence of its help."""

    name: str
    module: str
    panel: str
    summary: str


COMMANDS = (
    CommandEntry("run", "run", LOCAL, "Run a search on this machine, with neither Kubernetes nor root."),
    CommandEntry(
        "watch", "watch", READ, "Show a running search: holder of each GPU, reasons, ranks, values, progress."
    ),
    CommandEntry(
        "dashboard",
        "dashboard",
        READ,
        "Show searches as a live page in the browser, from a cluster or from folders of `podium run`.",
    ),
    CommandEntry(
        "report",
        "report",
        READ,
        "Write one self-contained HTML file: learning curves, GPU allocations, every trial.",
    ),
    CommandEntry(
        "summary", "report", READ, "Print the best trial, GPU-seconds by use, and the cost of the suspensions."
    ),
    CommandEntry("best", "best", READ, "Print the best trial of a job: value, step and parameters."),
    CommandEntry("get", "get", READ, "List jobs, the trials of a job, or the GPUs and queues of the cluster."),
    CommandEntry(
        "explain",
        "explain",
        READ,
        "Explain why a search or a trial runs or waits, or how the nodes are scored for a pod.",
    ),
    CommandEntry(
        "doctor",
        "doctor",
        READ,
        "Check a cluster for Podium, before or after its installation, and print what is wrong with the cure.",
    ),
    CommandEntry("logs", "logs", READ, "Print the log of a trial, and follow it across its attempts."),
    CommandEntry("export", "export", READ, "Write a search to a file for `podium simulate`, or for other tools."),
    CommandEntry(
        "suspend", "intent", CHANGE, "Suspend a whole job: its trials release their GPUs and keep their progress."
    ),
    CommandEntry("resume", "intent", CHANGE, "Continue a suspended job."),
    CommandEntry("pin", "intent", CHANGE, "Rank a trial before all others of its job."),
    CommandEntry("stop", "intent", CHANGE, "End a trial now and keep its result (cannot be undone)."),
    CommandEntry(
        "thaw", "thaw", CHANGE, "Resume every suspended trial of a node and suspend nothing there until --undo."
    ),
    CommandEntry(
        "drain", "drain", CHANGE, "Move trials off a node without lost work and admit none there until --undo."
    ),
    CommandEntry("validate", "validate", OFFLINE, "Check HyperParamJobs and GPUQueues in files, without a cluster."),
    CommandEntry("convert", "convert", OFFLINE, "Convert searches of Katib, W&B or Kubeflow into HyperParamJobs."),
    CommandEntry("warm-start", "warm_start", OFFLINE, "Print a job that starts with the results of earlier searches."),
    CommandEntry(
        "plan", "plan", OFFLINE, "Forecast a job before anything runs: end, best value, suspensions, GPU hours."
    ),
    CommandEntry(
        "simulate",
        "simulate",
        OFFLINE,
        "Replay policies on recorded learning curves, to see which finds good trials soonest.",
    ),
    CommandEntry(
        "capacity",
        "capacity",
        OFFLINE,
        "Compute how many GPUs keep the wait within a bound, from numbers or a trace.",
    ),
    CommandEntry(
        "optimise", "optimise", OFFLINE, "Schedule the tasks of a file onto CPUs and GPUs with the optimisers."
    ),
    CommandEntry(
        "realtime",
        "realtime",
        OFFLINE,
        "Simulate, admit and run periodic inference with deadlines on GPU partitions.",
    ),
)
