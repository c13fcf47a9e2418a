"""Identities of jobs and trials in a snapshot."""

from __future__ import annotations

from typing import NamedTuple


class JobKey(NamedTuple):
    """Identity of a job. A tuple, not a dataclass: a plan hashes and compares thousands of keys."""

    namespace: str
    name: str


class TrialKey(NamedTuple):
    """Identity of a trial. It includes the uid.

    A trial created again under the same name is another trial.
    """

    namespace: str
    name: str
    uid: str
