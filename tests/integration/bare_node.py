"""The complete system without a kubelet: real API server, operators, agent and trials, for the fault tests.

`bare_kubelet` takes the kubelet's and the scheduler's place. So a test needs seconds, and can put a faulty relay, a
limit or a preloaded library under each component.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bare_kubelet import BareKubelet
from extender_setup import free_port

from podium_cluster.client import Api, connect
from podium_cluster.resources import EVENTS, GPUNODES, JOBS, LEASES, NAMESPACES, NODES, PODS, TRIALS
from podium_cluster.settings import ClusterSettings

ROOT = Path(__file__).parents[2]
TRIAL = Path(__file__).with_name("bare_trial.py")
FINAL = ("Succeeded", "Failed", "Refused")
PATIENCE = 60.0
REQUEST_SECONDS = 60.0  # a busy machine must not cause failures
TOGETHER = 0.06  # seconds without a note after which a process did not run: its pause takes a sixth of that


def chain(steps: int) -> list[int]:
    """Return the values that a trial prints."""
    values, value = [], 1
    for step in range(1, steps + 1):
        value = (value * 31 + step) % 65521
        values.append(value)
    return values


def build(folder: Path) -> Path:
    """Build the fake driver and the gate helper."""
    for part in ("driver", "helper"):
        command = ["make", "-s", "-C", str(ROOT / "agent" / part), f"OUT={folder / part}"]
        subprocess.run(command, check=True, timeout=600)
    return folder


@dataclass
class Process:
    """A component as a process; it can be limited, stopped and started again."""

    module: str
    log: Path
    environment: dict[str, str]
    prefix: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            command = [*self.prefix, sys.executable, "-m", self.module]
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        assert self.process is not None
        return self.process.poll()

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(20)

    def page(self, path: str) -> str:
        url = f"http://127.0.0.1:{self.environment['PODIUM_HTTP_PORT']}{path}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            text: str = answer.read().decode()
            return text

    def ready(self) -> bool:
        assert self.code is None, f"{self.module} ended:\n{self.text()[-4000:]}"
        with contextlib.suppress(OSError):
            return self.page("/readyz") == "ok\n"
        return False

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def cpu_seconds(self) -> float:
        """Return the CPU time that the process has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class BareNode:
    """One node with its agent, and the operators of its cluster.

    `kubeconfig` is the administrator's. The components get it too, unless a test gives them that of a relay.
    """

    kubeconfig: Path
    folder: Path
    built: Path
    name: str
    operators: dict[str, Process] = field(default_factory=dict)
    _jobs: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        state = self.folder / "gpu"
        settings = {"FAKE_GPU_DIR": str(state), "FAKE_GPU_NODE": self.name, "FAKE_GPUS": "1"}
        self._driver = subprocess.Popen(
            [str(self.built / "driver/podium-fake-gpud"), "run"], env=settings, stdout=subprocess.DEVNULL
        )
        self.beats = self.folder / "beats"
        self.beats.mkdir()
        self._connected: concurrent.futures.Future[Api] = concurrent.futures.Future()
        self._ends = asyncio.run_coroutine_threadsafe(self._keep_connection(), self._loop)
        self._api: Api = self._connected.result(20)
        self._pods: concurrent.futures.Future[None] | None = None
        self.api(self._prepare)
        self.kubelet = BareKubelet(self.folder, self.name, self.built / "helper/podium-gate")
        self.agent = Process("podium_agent.main", self.folder / "agent.log", self._agent_settings(state))

    async def _keep_connection(self) -> None:
        self._closing = asyncio.Event()
        async with connect(ClusterSettings(kubeconfig=self.kubeconfig, request_timeout=REQUEST_SECONDS)) as api:
            self._connected.set_result(api)
            await self._closing.wait()

    def api(self, call: Callable[[Api], Awaitable[Any]]) -> Any:
        """Run a call to the real API server, not through a relay."""

        async def run() -> Any:
            return await call(self._api)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(2 * REQUEST_SECONDS)

    async def _prepare(self, api: Api) -> None:
        for name in ("podium-system", self.name):
            await api.apply(NAMESPACES, {"metadata": {"name": name}}, manager="test")
        await api.apply(NODES, {"metadata": {"name": self.name}}, manager="test")
        await api.delete(LEASES, "podium-operator", "podium-system")

    def _agent_settings(self, state: Path) -> dict[str, str]:
        trial_dir = self.kubelet.gates.parent
        settings = {
            "PODIUM_KUBECONFIG": self.kubeconfig,
            "PODIUM_NODE_NAME": self.name,
            "PODIUM_TRIAL_DIR": trial_dir,
            "PODIUM_HELPER": self.built / "helper/podium-gate",
            "PODIUM_PLUGIN_DIR": self.kubelet.plugins,
            "PODIUM_POD_RESOURCES_SOCKET": self.kubelet.resources_socket,
            "PODIUM_PODS_DIR": self.folder / "pod-folders",
            "PODIUM_POD_LOGS": self.kubelet.logs,
            "PODIUM_HTTP_HOST": "127.0.0.1",
            "PODIUM_HTTP_PORT": free_port(),
            "PODIUM_LOG_FORMAT": "console",
            "LD_LIBRARY_PATH": self.built / "driver",
            "PODIUM_FAKE_DRIVER_STATE": state / "state",
        }
        return os.environ | {key: str(value) for key, value in settings.items()}

    def start(self, operators: Mapping[str, Path] | None = None) -> None:
        """Start the agent and the operators, each with a kubeconfig by its name; wait until they are ready."""
        self.agent.start()
        for name, kubeconfig in (operators or {"one": self.kubeconfig}).items():
            self.operators.setdefault(name, self.operator(name, kubeconfig))
            self.operators[name].start()
            self.until(self.operators[name].ready, f"operator {name} is ready")
        gpus = self.until(lambda: self.gpunode().get("status", {}).get("gpus"), "the GPU in the GPUNode")
        self.uuid: str = gpus[0]["uuid"]
        self.kubelet.set_gpu(self.uuid)
        self._pods = asyncio.run_coroutine_threadsafe(self.kubelet.run(self._api), self._loop)

    def operator(self, name: str, kubeconfig: Path) -> Process:
        settings = {
            "PODIUM_KUBECONFIG": kubeconfig,
            "PODIUM_IDENTITY": name,
            # jobs that other tests leave behind on this API server would claim the slots
            "PODIUM_WATCH_NAMESPACE": self.name,
            "PODIUM_HTTP_HOST": "127.0.0.1",
            "PODIUM_HTTP_PORT": free_port(),
            "PODIUM_LOG_FORMAT": "console",
            "PODIUM_IMAGE": "localhost/podium:test",
        }
        environment = os.environ | {key: str(value) for key, value in settings.items()}
        return Process("podium_operator.main", self.folder / f"operator-{name}.log", environment)

    def close(self) -> None:
        for one in (*self.operators.values(), self.agent):
            one.kill()
        if self._pods is not None:
            self._pods.cancel()
        self.kubelet.close()
        self._driver.terminate()
        self._driver.wait(10)
        self.api(self._remove_jobs)
        for resource in (GPUNODES, NODES):
            self.api(lambda api, resource=resource: api.delete(resource, self.name))
        self.api(lambda api: api.delete(LEASES, self.name, "kube-node-lease"))
        self.api(lambda api: api.delete(NAMESPACES, self.name))
        self._loop.call_soon_threadsafe(self._closing.set)
        self._ends.result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _remove_jobs(self, api: Api) -> None:
        """Delete the jobs; no operator is left that would remove their finalizers."""
        for job in (await api.list(JOBS, self.name))["items"]:
            name = job["metadata"]["name"]
            await api.patch(JOBS, name, self.name, {"metadata": {"finalizers": None}}, manager="test")
            await api.delete(JOBS, name, self.name)

    # the user

    def search(self, trials: int = 3, steps: int = 30, seconds: float = 0.1, **spec: Any) -> str:
        """Create a job of trials that share the GPU in turns; return its name."""
        name = f"search-{next(self._jobs)}"
        command = [sys.executable, str(TRIAL), str(steps), str(seconds), str(self.beats), "$(podium.args)"]
        default: dict[str, Any] = {
            "objective": {"metric": "loss", "direction": "minimize"},
            "parameters": [{"name": "seed", "type": "int", "min": 1, "max": 99}],
            "trials": {"max": trials, "parallel": trials, "maxSteps": steps},
            "policy": {"name": "round_robin", "settings": {"quantum": 3}},
            "gpus": {"perTrial": 1},
            "suspension": {"methods": ["freeze"], "gracePeriodSeconds": 5},
            "template": {"spec": {"containers": [{"name": "main", "image": "i", "command": command}]}},
        }
        about = {"name": name, "namespace": self.name}
        manifest = {"apiVersion": "podium.dev/v1alpha1", "kind": "HyperParamJob", "metadata": about}
        self.api(lambda api: api.create(JOBS, {**manifest, "spec": default | spec}, manager="test"))
        return name

    def gpunode(self) -> dict[str, Any]:
        found = self.api(lambda api: api.list(GPUNODES))["items"]
        return next((one for one in found if one["metadata"]["name"] == self.name), {})

    def job(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api(lambda api: api.get(JOBS, name, self.name))
        return found

    def trials(self, job: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api(lambda api: api.list(TRIALS, self.name, labels=f"podium.dev/job={job}"))[
            "items"
        ]
        return found

    def pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api(lambda api: api.list(PODS, self.name))["items"]
        return found

    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api(lambda api: api.list(EVENTS, self.name))["items"]
        return found

    def suspensions(self, job: str) -> int:
        return sum(one.get("status", {}).get("suspensions", {}).get("count", 0) for one in self.trials(job))

    def until(self, condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
        """Return the first true result of the condition."""
        deadline = time.monotonic() + seconds
        while not (answer := condition()):
            if time.monotonic() > deadline:
                logs = [one.text()[-3000:] for one in (self.agent, *self.operators.values())]
                raise AssertionError(f"{what}: not within {seconds:g} s\n" + "\n---\n".join(logs))
            time.sleep(0.1)
        return answer

    def wait_for_end(self, job: str, seconds: float = 120) -> None:
        self.until(lambda: self.job(job).get("status", {}).get("phase") in FINAL, f"{job} ends", seconds)
