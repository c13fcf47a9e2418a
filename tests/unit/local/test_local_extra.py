"""Which commands work without the client of the API server: those that the extra `local` is for."""

from __future__ import annotations

import subprocess
import sys

import pytest

CLUSTER_ONLY = ("kubernetes", "aiohttp", "kopf", "pydantic_settings", "prometheus_client", "fastapi", "grpc")
WITHOUT = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None  # an import raises ModuleNotFoundError
from podium_cli.main import run
sys.exit(run([{command!r}, *{arguments!r}]))
"""


def called(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command where the packages of a cluster are not installed."""
    code = WITHOUT.format(blocked=CLUSTER_ONLY, command=command, arguments=arguments)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", ["run", "validate", "report", "summary", "export", "simulate", "plan"])
def test_a_command_needs_no_client_of_a_cluster(command: str) -> None:
    done = called(command, "--help")
    assert done.returncode == 0, done.stderr


def test_a_command_that_needs_one_names_the_extra() -> None:
    done = called("watch", "digits")
    assert done.returncode == 2
    assert "kube-podium[cli]" in done.stderr


def test_the_python_api_needs_no_client_of_a_cluster() -> None:
    code = f"""
import sys
for name in {CLUSTER_ONLY!r}:
    sys.modules[name] = None
import podium
podium.tune, podium.Client(folder="podium-runs")
try:
    podium.Client()
except podium.SearchError as error:
    print(error)
print(sorted(name for name in ("optuna", "scipy", "torch") if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    error, loaded = done.stdout.splitlines()
    assert error.startswith("ExtraMissing: podium.Client without a folder needs aiohttp")
    assert "pip install 'kube-podium[cluster,cli]'" in error
    assert loaded == "[]", "they print warnings in notebooks, and cost a second"


def test_the_dashboard_of_a_folder_needs_the_web_server_but_no_client_of_a_cluster() -> None:
    without = [name for name in CLUSTER_ONLY if name != "fastapi"]
    code = WITHOUT.format(blocked=without, command="dashboard", arguments=("missing", "--port", "0"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "FolderNotFound" in done.stderr
