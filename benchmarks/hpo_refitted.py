"""The envelope as it would be had the table of final values been fitted on other tasks. Called by the
cross-validation: the widths that the policy reads are the product's only figures that are fitted and no constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hpo_wrapped import Wrapped

from podium_core.curves import final_value
from podium_core.curves.curve_table import Floats
from podium_core.domain.snapshot import JobView, Snapshot, TrialView
from podium_core.policies import envelope
from podium_core.policies.base import Ranked
from podium_core.policies.envelope import Envelope


@contextmanager
def reading(interval_widths: tuple[Floats, Floats]) -> Iterator[None]:
    """Within it the envelope's `undecided` reads these widths (`final_value.widths`)."""
    shipped = final_value._WIDTH_BY_DOUBLINGS
    final_value._WIDTH_BY_DOUBLINGS = interval_widths
    envelope._first_width.cache_clear()
    try:
        yield
    finally:
        final_value._WIDTH_BY_DOUBLINGS = shipped
        envelope._first_width.cache_clear()


@dataclass(frozen=True, slots=True)
class Refitted(Wrapped):
    """Ranks within `reading`, so it does not matter which process replays it, nor what that one replayed before."""

    inner: Envelope
    interval_widths: tuple[Floats, Floats]

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Sequence[Ranked]:
        with reading(self.interval_widths):
            return self.inner.rank(job, trials, snapshot)
