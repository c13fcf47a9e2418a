"""The chart refuses CRDs of another release: Helm would leave them as they are, and new agents need theirs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from chart_rendering import CHART, Tool, make_tool

pytestmark = pytest.mark.integration
APPLY = ("kubectl", "apply", "--server-side", "--force-conflicts", "-f", str(CHART / "crds"))


@pytest.fixture
def tool(binary: Callable[[str], Path], kubeconfig: Path) -> Iterator[Tool]:
    """Programs for the cluster of the session, which has the CRDs of this checkout before and after the test."""
    made = make_tool(binary, kubeconfig)
    yield made
    done = made(*APPLY)
    assert done.returncode == 0, done.stderr


def install(tool: Tool) -> CompletedProcess[str]:
    """Install the chart as far as the API server can tell without doing it."""
    return tool("helm", "install", "podium", str(CHART), "--namespace=default", "--dry-run=server", "--hide-notes")


@pytest.mark.parametrize("annotation", ["podium.dev/schema-", "podium.dev/schema=sha256:0"], ids=["none", "another"])
def test_crds_of_another_release_are_refused_until_those_of_the_chart_are_applied(tool: Tool, annotation: str) -> None:
    assert install(tool).returncode == 0
    done = tool("kubectl", "annotate", "--overwrite", "crd/gpunodes.podium.dev", annotation)
    assert done.returncode == 0, done.stderr
    refused = install(tool)
    assert refused.returncode != 0
    assert "the CRD gpunodes.podium.dev of the cluster is that of another release" in refused.stderr
    assert "kubectl apply --server-side --force-conflicts -f FOLDER/crds" in refused.stderr
    done = tool(*APPLY)
    assert done.returncode == 0, done.stderr
    assert install(tool).returncode == 0
