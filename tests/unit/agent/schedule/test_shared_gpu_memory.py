"""Two trials that do not fit together share one GPU: real processes in real cgroups on the fake driver, with the
agent's own observer, local scheduler, ledger, executor and suspension method. The kubelet and the API are simulated.

The trials are the example's script. Each declares 80 % of the GPU and takes 60 % (the rest is for a real context).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pynvml
import pytest
from agent_builders import key, pod, pod_uid

from podium_agent.metrics import Metrics
from podium_agent.observe.gpu_health import Reading, Sample, merge
from podium_agent.observe.observer import Observer
from podium_agent.observe.pod_records import PodRecord
from podium_agent.observe.pods import TrialPod
from podium_agent.report.node_status import (
    NodeFacts,
    build,
)
from podium_agent.schedule.admissions import Admissions
from podium_agent.schedule.executor import (
    Executor,
    ExecutorHooks,
    TrialStart,
)
from podium_agent.schedule.gate import Gates
from podium_agent.schedule.memory_admission import MemoryAdmission
from podium_agent.schedule.node_reconciler import View
from podium_agent.settings import AgentSettings
from podium_core.attempts.local_scheduler import (
    QueueEntry,
    RunQueues,
    decide,
)
from podium_core.attempts.local_trial import OCCUPYING, LocalTrial
from podium_core.schema.gpunode import SlotState
from podium_suspension.cuda import CudaDriver, ProcessState
from podium_suspension.cuda_checkpoint import CudaCheckpoint
from podium_suspension.freeze import Freeze
from podium_suspension.gpu_memory import read_memory
from podium_suspension.gpu_state_notes import GpuStateNotes
from podium_suspension.methods import SuspensionMethods
from podium_suspension.processes import CudaProcesses

SCRIPT = Path(__file__).resolve().parents[4] / "examples/digits/train.py"
FLAGS = ["--work=12", "--epochs=1000000", "--width=16", "--batch-size=128"]
SEEDS = {"a": "1", "b": "2"}
V1 = Path("/sys/fs/cgroup/freezer")
METHOD = "cuda-checkpoint"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="cgroups are root's")


@dataclass
class Trial:
    """One trial's container: started when its gate opens."""

    name: str
    place: Path
    environment: dict[str, str]
    output: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.place.mkdir(parents=True)
        command = ["sh", "-c", 'echo $$ > "$0"; exec "$@"', str(self.place / "cgroup.procs")]
        with self.output.open("wb") as file:
            script = [sys.executable, str(SCRIPT), *FLAGS, f"--seed={SEEDS[self.name]}"]
            self.process = subprocess.Popen([*command, *script], stdout=file, env=self.environment)

    def lines(self) -> list[str]:
        """Those that are whole: it may be printing one."""
        text = self.output.read_text() if self.output.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()

    def as_pod(self, memory: int) -> TrialPod:
        over = self.process is not None and self.process.poll() is not None
        running = self.process is not None and not over
        return pod(
            self.name,
            containers__running=frozenset({self.place.name}) if running else frozenset(),
            containers__main=self.place.name,
            gate__running=self.process is None,
            gate__passed=self.process is not None,
            status__ended=over,
            requests__gpu_memory=memory,
            settings__methods=(METHOD,),
        )


class _Gates(Gates):
    def __init__(self, trials: dict[str, Trial]) -> None:
        super().__init__(Path("/proc"), lambda: None)
        self._trials = {pod_uid(name): trial for name, trial in trials.items()}

    def waiting(self, pod_uid: str) -> bool:
        return self._trials[pod_uid].process is None

    def open(self, pod_uid: str) -> None:
        self._trials[pod_uid].start()
        super().open(pod_uid)


@dataclass
class Site:
    """One GPU and an agent; `command` is the operator's order."""

    node: Any
    gpu: str
    total: int
    trials: dict[str, Trial]
    observer: Observer
    executor: Executor
    run_queues: RunQueues = field(default_factory=RunQueues)
    most_held: int = 0

    @property
    def declared(self) -> int:
        return self.total * 4 // 5

    def command(self, *names: str) -> None:
        self.run_queues = RunQueues(
            self.run_queues.epoch + 1, {self.gpu: tuple(QueueEntry(key(name)) for name in names)}
        )

    def record(self, name: str) -> PodRecord:
        found = self.observer.record(pod_uid(name))
        assert found is not None
        return found

    def report(self, trials: tuple[LocalTrial, ...], now: float) -> None:
        """What the agent would tell the API in this very moment: at most one holder, whatever is under way."""
        reading = merge(Reading(), [Sample(self.gpu, 0, "X", self.total)], now, "610")
        facts, view = NodeFacts(reading, 4, (METHOD,), "0"), View(RunQueues(1), trials)
        status = build(facts, view, lambda _: 1, lambda trial: trial.since, now).gpus[0]
        at_work = [trial.key.name for trial in trials if trial.state in OCCUPYING]
        assert at_work == ([status.holder.trial] if status.holder else [])

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """The agent's loop, until then."""
        deadline = time.monotonic() + 300.0
        while not condition():
            now = time.time()
            pods = [trial.as_pod(self.declared) for trial in self.trials.values()]
            self.observer.observe(pods, now)
            for record in self.observer.records():
                record.gpus, record.processes.searched_at = (self.gpu,), 0.0
            self.executor.execute(decide(self.run_queues, self.observer.observe(pods, now), now))
            self.report(self.observer.observe(pods, now), now)
            self.most_held = max(self.most_held, sum(one.get(self.gpu, 0) for one in read_memory().held.values()))
            assert time.monotonic() < deadline, (
                f"{what}: not in time; {[r.memory.shortage for r in self.observer.records()]}"
            )
            await asyncio.sleep(0.005)


@pytest.fixture
def site(cuda_node: Any, tmp_path: Path) -> Iterator[Site]:
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    gpu, total = str(pynvml.nvmlDeviceGetUUID(handle)), int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    pynvml.nvmlShutdown()
    root = (V1 if V1.is_dir() else V1.parent) / f"podium-shared-{uuid.uuid4().hex[:8]}"
    environment = {"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": "0"}
    environment |= {"PODIUM_GPU_MEMORY_BYTES": str(total * 4 // 5)}
    if cuda_node.folder is not None:
        environment["LD_LIBRARY_PATH"] = str(Path(cuda_node.library).parent)
        environment["PODIUM_FAKE_DRIVER_STATE"] = str(cuda_node.folder / "state")
    trials = {
        name: Trial(name, root / f"pod{pod_uid(name)}" / os.urandom(32).hex(), environment, tmp_path / name)
        for name in SEEDS
    }
    settings = AgentSettings(node_name="n", trial_dir=tmp_path / "trial")
    freeze, notes, gates = Freeze(5.0), GpuStateNotes(tmp_path / "gpu-state"), _Gates(trials)
    cuda = CudaCheckpoint(CudaProcesses(CudaDriver(cuda_node.library), 5.0, 20.0), freeze, notes)
    methods, admissions = SuspensionMethods(freeze, cuda, notes=notes), Admissions(settings.admissions_dir)
    observer = Observer(settings, gates, admissions, methods, lambda: None)
    start = TrialStart(gates, admissions, MemoryAdmission(observer.records, methods))
    executor = Executor(observer, methods, start, Metrics(), 1.0, ExecutorHooks({}.get, lambda: None))
    yield Site(cuda_node, gpu, total, trials, observer, executor)
    for trial in trials.values():
        record = observer.record(pod_uid(trial.name))
        for freezer in () if record is None else record.processes.freezers:
            freezer.ask(False)
        if trial.process is not None:
            trial.process.kill()
            trial.process.wait(20)
    cuda_node.release_memory(0)
    places = [trial.place for trial in trials.values()]
    for place in (*places, *(place.parent for place in places), root):
        for _ in range(500):  # the kernel lets go of a cgroup a moment after its last process
            try:
                place.rmdir()
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.01)


def alone(name: str, count: int) -> list[str]:
    """The first lines that the script prints without Podium and without a GPU."""
    command = [sys.executable, str(SCRIPT), *FLAGS, f"--seed={SEEDS[name]}"]
    environment = {"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": ""}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().rstrip("\n") for _ in range(count)]
        process.kill()
    return lines


def test_two_trials_that_do_not_fit_together_share_a_gpu_and_wait_for_another_process(site: Site) -> None:
    driver = CudaDriver(site.node.library)

    async def turn(now: str, then: str) -> None:
        site.command(now, then)
        before = len(site.trials[now].lines())
        await site.until(lambda: len(site.trials[now].lines()) >= before + 2, f"{now} works")

    def waits(name: str) -> bool:
        return bool(site.record(name).memory.shortage) and site.record(name).state is SlotState.SUSPENDED

    async def scene() -> None:
        for _ in range(3):  # the one works on, the other's memory is off the GPU
            await turn("a", "b")
            await turn("b", "a")
        site.node.overcommit_memory(0, site.total // 2)  # just before a is brought back
        site.command("a", "b")
        await site.until(lambda: all(map(waits, SEEDS)), "both wait for memory")
        assert f"GPU {site.gpu} has " in site.record("a").memory.shortage
        for trial in site.trials.values():
            assert trial.process is not None
            assert driver.state(trial.process.pid) is ProcessState.CHECKPOINTED, "waiting, not FAILED"
        site.node.release_memory(0)
        await turn("a", "b")
        await turn("b", "a")

    asyncio.run(scene())
    for name, trial in site.trials.items():
        lines = trial.lines()
        assert len(lines) >= 8
        assert lines == alone(name, len(lines)), "bit-identical to running alone"
    assert site.total // 2 < site.most_held <= site.total, "each had more than half of the GPU"
