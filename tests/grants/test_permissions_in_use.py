"""Every permission of the chart is used in the run of tests/e2e, or docs/reference/permissions.md says why not.

The evidence are the audit logs of all clusters of the run, which tests/e2e/conftest.py records. `make test` and
`make test-e2e` run this folder after it. Where only a part of tests/e2e ran, an unused permission means nothing, so
these tests are skipped. An explained permission may be used all the same: some are needed at certain times only.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from grant_records import FOLDER, Record, Refusal, folder, load_all
from permission_table import PAGE, WIDEST, bound_roles, explanations, rendered, unexplained
from rbac_grants import Grant, Request, expand, used

from podium_devcluster.artifacts import binaries
from podium_devcluster.paths import Cache

ROOT = Path(__file__).parents[2]
# tests that take a right away from a running Podium, by the start of their name
PROVOKED = {
    "tests/e2e/test_uninstall.py::": "Helm deletes the roles while the pods that use them end",
    "tests/e2e/test_offline_install.py::": "Helm deletes the roles while the pods that use them end",
    "tests/e2e/test_upgrade.py::": "Helm changes and deletes the roles while the pods that use them end",
    "tests/e2e/test_kubernetes_faults.py::": "an API server that starts answers 403 until it has read the roles",
}


def not_run(collected: Iterable[str], records: Iterable[Record]) -> set[str]:
    """Return the tests that no record lists."""
    return set(collected).difference(*(record.tests for record in records))


def unprovoked(refusals: Iterable[Refusal]) -> list[Refusal]:
    """Return the refusals during tests that take no right away."""
    return sorted(one for one in refusals if not one.test.startswith(tuple(PROVOKED)))


def of_programs(grants: Iterable[Grant], requests: Iterable[Request]) -> set[Grant]:
    """Return the grants in use.

    kube-scheduler and the extender share an account. Kubernetes' roles serve the first, the chart's role serves the
    second.
    """
    theirs = bound_roles(PAGE.read_text())
    by_scheduler: list[Request] = []
    others: list[Request] = []
    for request in requests:
        (by_scheduler if request.program == "kube-scheduler" else others).append(request)
    split: tuple[list[Grant], list[Grant]] = ([], [])
    for grant in grants:
        split[grant.role in theirs].append(grant)
    return used(split[0], others) | used(split[1], by_scheduler)


def targets_of_their_own() -> list[str]:
    """Return the files of tests/e2e that only other targets of the Makefile run."""
    (line,) = re.findall(r"^OTHERS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    names: list[str] = line.split()
    assert all((ROOT / name).is_file() for name in names)
    return names


def collected_tests() -> list[str]:
    """Return the tests of tests/e2e that `make test` runs."""
    ignored = [f"--ignore={name}" for name in targets_of_their_own()]
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider", *ignored]
    command.append("tests/e2e")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if "::" in line]


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """The records of a run of all tests of tests/e2e."""
    place = folder()
    if place is None:
        pytest.skip(f"{FOLDER} is not set: `make test` and `make test-e2e` record what the audit logs have")
    found = load_all(place)
    missing = not_run(collected_tests(), found)
    if missing:
        pytest.skip(f"{len(missing)} tests of tests/e2e did not run or pass, such as {min(missing)}")
    cut = [record.cluster for record in found if not record.complete]
    assert not cut, f"the audit logs of {', '.join(cut)} were full, so requests are missing; record more rarely"
    return found


@pytest.fixture(scope="module")
def grants(records: list[Record]) -> list[Grant]:
    """All permissions that the chart can grant, with those of Kubernetes' roles that it binds."""
    roles = {role["metadata"]["name"]: role for record in records for role in record.roles}
    helm = binaries.HELM.path(Cache.default())
    # with WIDEST all permissions exist; a cluster of tests/e2e needs no more than some of them
    return expand(rendered(helm, WIDEST), roles.values())


@pytest.fixture(scope="module")
def in_use(grants: list[Grant], records: list[Record]) -> set[Grant]:
    return of_programs(grants, [request for record in records for request in record.requests])


def test_every_permission_is_used_or_explained(grants: list[Grant], in_use: set[Grant]) -> None:
    page = PAGE.read_text()
    own = [one for one in grants if one.role not in bound_roles(page)]
    found = unexplained(own, in_use, explanations(page))
    assert [str(one) for one in found] == [], "remove it from the chart or explain it"


def test_every_role_of_kubernetes_is_used(in_use: set[Grant]) -> None:
    assert bound_roles(PAGE.read_text()).keys() - {one.role for one in in_use} == set()


def test_podiums_own_accounts_were_refused_nothing(records: list[Record]) -> None:
    found = unprovoked(one for record in records for one in record.refusals)
    assert [f"{one.test}: {one.request}: {one.message}" for one in found] == []
