"""The chart over an earlier release: CRDs of another one are refused, and Helm's own part of an upgrade and a rollback.

No pod runs here, so hooks are left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from chart_rendering import CHART, Tool, make_tool

from podium_devcluster.artifacts.earlier import EarlierCommit, MissingCommitError

pytestmark = pytest.mark.integration
RELEASE = EarlierCommit("27e08f45")  # release 0.1.0
NAMESPACE = "upgrade"
OBJECTS = (
    "deployments,daemonsets,configmaps,services,serviceaccounts,clusterroles,clusterrolebindings,roles,rolebindings,"
    "priorityclasses,validatingadmissionpolicies,validatingadmissionpolicybindings"
)
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


@pytest.fixture
def earlier_chart(tmp_path: Path) -> Path:
    try:
        RELEASE.export(tmp_path, "charts/podium")
    except MissingCommitError as error:
        pytest.skip(str(error))  # tests/conftest.py turns this into a failure where CI=true
    return tmp_path / "charts/podium"


@pytest.fixture
def helm(tool: Tool) -> Iterator[Callable[..., CompletedProcess[str]]]:
    """A function that changes the release `podium` of a namespace, which is removed at the end."""

    def run(command: str, *words: str) -> CompletedProcess[str]:
        return tool("helm", command, "podium", *words, f"--namespace={NAMESPACE}", "--no-hooks")

    tool("kubectl", "create", "namespace", NAMESPACE)
    yield run
    run("uninstall", "--ignore-not-found")
    tool("kubectl", "delete", "namespace", NAMESPACE, "--wait=false")


def agent(tool: Tool) -> tuple[str, dict[str, str]]:
    """Return the image and the environment of the agents, as the API server has them."""
    done = tool("kubectl", "get", "daemonset", "podium-agent", "-n", NAMESPACE, "-o", "json")
    (container,) = json.loads(done.stdout)["spec"]["template"]["spec"]["containers"]
    return container["image"], {entry["name"]: entry.get("value", "") for entry in container["env"]}


def test_an_upgrade_keeps_the_users_values_and_can_be_rolled_back(
    tool: Tool, helm: Callable[..., CompletedProcess[str]], earlier_chart: Path
) -> None:
    file = earlier_chart / "Chart.yaml"  # the chart of a release names its image
    file.write_text(file.read_text().replace("appVersion: dev", "appVersion: earlier"))
    done = helm("install", str(earlier_chart), "--set", "agent.slotsPerGPU=5")
    assert done.returncode == 0, done.stderr
    image, environment = agent(tool)
    assert image.endswith(":earlier")
    done = helm("upgrade", str(CHART), "--reuse-values", "--dry-run=server")
    assert "missing propert" in done.stderr, "the old defaults lack the new values, as the page says"
    for _ in range(2):
        done = helm("upgrade", str(CHART), "--reset-then-reuse-values")
        assert done.returncode == 0, done.stderr
        present, after = agent(tool)
        assert present == image.replace(":earlier", ":dev")
        assert after["PODIUM_SLOTS_PER_GPU"] == "5"
        done = helm("rollback")
        assert done.returncode == 0, done.stderr
        assert agent(tool) == (image, environment)
    done = helm("uninstall")
    assert done.returncode == 0, done.stderr
    selector = "app.kubernetes.io/instance=podium,helm.sh/chart"
    assert tool("kubectl", "get", OBJECTS, "-n", NAMESPACE, "-l", selector, "-o", "name").stdout == ""
