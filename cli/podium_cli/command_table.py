"""Which commands there are, in which module of `commands`, and what each is for.

Used by `main`, which shows it without importing any of those modules (they import nearly all of Podium: most of a
second), and by each of them for its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

MODULES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "watch": {"watch": "show a search as it goes: who holds which GPU and why, ranks, values, progress"},
        "report": {
            "report": "write one self-contained HTML file: learning curves, who held each GPU when, every trial",
            "summary": "print the best trial, GPU-seconds by use, and what the suspensions cost",
        },
        "get": {"get": "list the trials of a job, or the GPUs of the cluster"},
        "explain": {"explain": "say why a trial runs or waits, or how the nodes are judged for a pod"},
        "intent": {
            "suspend": "suspend a whole job: its trials give their GPUs back and keep what they have learned",
            "resume": "let a suspended job go on",
            "pin": "rank a trial before all others of its job",
            "stop": "end a trial now and keep its result (cannot be undone)",
        },
        "thaw": {"thaw": "resume every suspended trial of a node and suspend nothing there until --undo"},
        "drain": {"drain": "move every trial that can save off a node, and let none come there until --undo"},
        "validate": {"validate": "check HyperParamJobs in files, without a cluster"},
        "capacity": {"capacity": "how many GPUs keep the wait within a bound, from numbers or from a trace"},
        "optimise": {"optimise": "schedule with the optimisers: tasks of a file onto CPUs and GPUs"},
        "plan": {
            "plan": "forecast a job before anything runs: when it ends, when it has its best, suspensions, GPU hours"
        },
        "realtime": {"realtime": "periodic inference with deadlines on partitions of a GPU: simulate, admit, run"},
        "simulate": {
            "simulate": "replay every policy on recorded learning curves: which one finds good trials soonest?"
        },
        "export": {"export": "write the learning curves of a search to a file, for `podium simulate`"},
    }
)
SAYS: Mapping[str, str] = MappingProxyType({name: says for found in MODULES.values() for name, says in found.items()})
