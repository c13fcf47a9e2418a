"""The origin of a child of population-based training: between the stored form and the planner's."""

from __future__ import annotations

from podium_core.domain.population import Lineage
from podium_core.schema.trial import Parent


def lineage_from(parent: Parent | None) -> Lineage | None:
    """Return the planner's form of `spec.parent`."""
    if parent is None:
        return None
    return Lineage(parent.name, parent.uid, parent.generation, parent.step, parent.replaces)


def parent_from(lineage: Lineage | None) -> Parent | None:
    """Return the stored form, `spec.parent`."""
    if lineage is None:
        return None
    return Parent(
        name=lineage.parent,
        uid=lineage.uid,
        generation=lineage.generation,
        step=lineage.step,
        replaces=lineage.replaces,
    )
