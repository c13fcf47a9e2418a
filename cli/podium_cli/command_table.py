"""Table of the commands: the module of `commands` that defines each of them, and a one-line summary.

`main` shows this table without an import of those modules. They import nearly all of Podium, which takes most of a
second.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

MODULES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "watch": {"watch": "show a running search: holder of each GPU, reasons, ranks, values, progress"},
        "report": {
            "report": "write one self-contained HTML file: learning curves, GPU allocations, every trial",
            "summary": "print the best trial, GPU-seconds by use, and the cost of the suspensions",
        },
        "get": {"get": "list the trials of a job, or the GPUs of the cluster"},
        "explain": {"explain": "explain why a trial runs or waits, or how the nodes are scored for a pod"},
        "intent": {
            "suspend": "suspend a whole job: its trials release their GPUs and keep their progress",
            "resume": "continue a suspended job",
            "pin": "rank a trial before all others of its job",
            "stop": "end a trial now and keep its result (cannot be undone)",
        },
        "thaw": {"thaw": "resume every suspended trial of a node and suspend nothing there until --undo"},
        "drain": {"drain": "move trials off a node without lost work and admit none there until --undo"},
        "validate": {"validate": "check HyperParamJobs in files, without a cluster"},
        "capacity": {"capacity": "compute how many GPUs keep the wait within a bound, from numbers or a trace"},
        "optimise": {"optimise": "schedule the tasks of a file onto CPUs and GPUs with the optimisers"},
        "plan": {"plan": "forecast a job before anything runs: end, best value, suspensions, GPU hours"},
        "realtime": {"realtime": "simulate, admit and run periodic inference with deadlines on GPU partitions"},
        "simulate": {"simulate": "replay policies on recorded learning curves: which one finds good trials soonest?"},
        "export": {"export": "write the learning curves of a search to a file for `podium simulate`"},
    }
)
SUMMARIES: Mapping[str, str] = MappingProxyType(
    {name: summary for commands in MODULES.values() for name, summary in commands.items()}
)
