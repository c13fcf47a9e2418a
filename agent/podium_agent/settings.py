"""Settings of the agent, from environment variables (`PODIUM_*`); tests can change every path."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from podium_agent.driver.libraries import DriverFiles
from podium_cluster.settings import ClusterSettings


class ExtraMount(BaseModel):
    """A file or folder of the node that every trial's container gets, such as a driver's libraries."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    host_path: str = Field(pattern="^/")
    container_path: str = Field(pattern="^/")
    read_only: bool = True


class ExtraDevice(BaseModel):
    """A device node that every trial's container gets."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    host_path: str = Field(pattern="^/")
    container_path: str = Field(pattern="^/")
    permissions: str = Field("rw", pattern="^[rwm]{1,3}$")


class AgentSettings(ClusterSettings):
    """Settings of one agent."""

    node_name: str = Field(min_length=1, description="the Kubernetes node that this agent serves")
    slots_per_gpu: int = Field(4, ge=1, le=64, description="trial pods that may occupy one GPU")
    resource: str = Field("podium.dev/gpu", description="the extended resource that a slot is counted as")
    gpu_mode: Literal["dedicated", "reservations"] = Field(
        "dedicated",
        description="reservations: only GPUs that reservation pods hold are shared, the others are nvidia.com/gpu's",
    )

    trial_dir: Path = Field(Path("/var/lib/podium/trial"), description="contains the helper and the gate's socket")
    trial_dir_on_host: Path | None = Field(None, description="the same folder as the node sees it, if elsewhere")
    helper: Path = Field(Path("/usr/local/lib/podium/podium-gate"), description="the static helper in the image")
    plugin_dir: Path = Field(Path("/var/lib/kubelet/device-plugins"), description="the kubelet's plugin sockets")
    pod_resources_socket: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    pods_dir: Path = Field(
        Path("/proc/1/root/var/lib/kubelet/pods"),
        description="the kubelet's folders of pods; gates get their files there",
    )
    pod_logs: Path = Path("/var/log/pods")
    proc: Path = Path("/proc")
    driver_library_path: Path | None = Field(
        None, description="folder with the driver's libraries (agent.driver.libraryPath); without it the agent searches"
    )
    host_root: Path = Field(
        Path("/proc/1/root"), description="the node's root folder, for CDI files, device nodes and the driver"
    )
    cgroup_root: Path = Field(Path("/sys/fs/cgroup"), description="where the cgroup file systems are mounted")

    registry: str = Field(
        "", description="for images of live trials (agent.checkpointRegistry); empty: no live migration"
    )

    extra_mounts: tuple[ExtraMount, ...] = ()
    extra_devices: tuple[ExtraDevice, ...] = ()
    trial_env: dict[str, str] = Field(default_factory=dict, description="further variables for trials' containers")

    telemetry_seconds: float = Field(1.0, gt=0, le=60, description="period between two samples of the GPUs")
    telemetry_timeout: float = Field(
        5.0, gt=0, le=60, description="a driver that takes longer to answer counts as hung"
    )
    tick_seconds: float = Field(0.2, gt=0, le=5, description="period of the safety net; changes are acted on at once")
    settle_seconds: float = Field(2.0, ge=0, le=60, description="wait after a start for gates to reconnect")
    freeze_timeout: float = Field(10.0, gt=0, le=120, description="a freeze that takes longer is undone")
    driver_seconds: float = Field(15.0, gt=0, le=600, description="between two attempts to find a missing CUDA driver")
    cuda_lock_seconds: float = Field(10.0, gt=0, le=600, description="time limit for a trial's submitted GPU work")
    cuda_copy_seconds: float = Field(
        300.0, gt=0, le=3600, description="time limit for a checkpoint or a restore of one process"
    )
    retry_seconds: float = Field(5.0, gt=0, le=300, description="pause after a suspension or resumption that failed")
    volume_timeout: float = Field(
        5.0, gt=0, le=60, description="a checkpoint volume that takes longer to read counts as hung"
    )
    exclusive_seconds: float = Field(
        25.0, gt=0, le=29, description="time limit until a GPU is free; the kubelet waits 30 s"
    )
    heartbeat_seconds: int = Field(10, ge=1, le=60)
    report_seconds: float = Field(30.0, gt=0, le=300, description="telemetry is reported at least this often")
    holder_report_seconds: float = Field(5.0, gt=0, le=300, description="the holder's GPU-seconds are at most this old")
    log_seconds: float = Field(0.5, gt=0, le=10, description="between two reads of the trials' logs")
    trial_report_seconds: float = Field(2.0, gt=0, le=60, description="between two patches of one trial")

    @property
    def driver_files(self) -> DriverFiles:
        return DriverFiles(self.proc, self.host_root, self.driver_library_path)

    @property
    def lock_file(self) -> Path:
        return self.trial_dir.parent / "agent.lock"

    @property
    def admissions_dir(self) -> Path:
        return self.trial_dir.parent / "admissions"

    @property
    def gpu_notes_dir(self) -> Path:
        return self.trial_dir.parent / "gpus"

    @property
    def exclusive_dir(self) -> Path:
        return self.trial_dir.parent / "exclusive"

    @property
    def trial_dir_for_mounts(self) -> Path:
        return self.trial_dir_on_host or self.trial_dir
