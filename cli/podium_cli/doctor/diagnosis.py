"""All checks on one snapshot of facts. Pure: `reader` reads the facts, `views.doctor` shows the results."""

from __future__ import annotations

from collections.abc import Iterator

from podium_cli.doctor.check_table import CHECKS, Outcome, Result, skipped
from podium_cli.doctor.cluster_checks import cluster_results
from podium_cli.doctor.facts import ClusterFacts
from podium_cli.doctor.gpu_checks import gpu_results
from podium_cli.doctor.installation_checks import installation_results
from podium_cli.doctor.node_checks import node_results

SEVERITY = {outcome: place for place, outcome in enumerate(Outcome)}
PLACE = {check.code: place for place, check in enumerate(CHECKS)}


def diagnose(facts: ClusterFacts) -> tuple[Result, ...]:
    """Return the results of all checks: errors first, then warnings, skipped checks, and what is right.

    Every check of the table has at least one result: without a node to look at, the checks of nodes are skipped.
    """
    results = list(_results(facts))
    made = {one.check for one in results}
    missing = [
        skipped(check.code, "cluster", "no node with GPUs is known") for check in CHECKS if check.code not in made
    ]
    return tuple(sorted([*results, *missing], key=_order))


def has_errors(results: tuple[Result, ...]) -> bool:
    """Return whether a check found an error."""
    return any(one.outcome is Outcome.ERROR for one in results)


def _results(facts: ClusterFacts) -> Iterator[Result]:
    yield from cluster_results(facts)
    yield from installation_results(facts)
    for node in facts.checked_nodes:
        yield from node_results(facts, node)
        yield from gpu_results(facts, node)


def _order(one: Result) -> tuple[int, int, str]:
    return SEVERITY[one.outcome], PLACE[one.check], one.subject
