"""Settings of live migration, from the environment (`PODIUM_*`); tests can change every path."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from podium_agent.driver.libraries import DriverFiles
from podium_agent.migration.kubelet import ACCOUNT
from podium_cluster.settings import ClusterSettings


class MigrationSettings(ClusterSettings):
    """Settings of the migration controller and of `python -m podium_agent.migration`."""

    registry: str = Field(min_length=1, description="host[:port] of the cluster's own registry for checkpoints")
    registry_user: str = Field("", description="user of the registry; empty for none")
    registry_password: str = ""
    kubelet_authority: Path = Field(ACCOUNT / "ca.crt", description="certificate authority of the kubelet")
    kubelet_token: Path = Field(ACCOUNT / "token", description="token of an account that may create nodes/checkpoint")
    checkpoints_dir: Path = Field(
        Path("/var/lib/kubelet/checkpoints"), description="folder in which the runtime writes archives"
    )
    restore_enabled: bool = Field(
        False, description="whether containerd's enable_experimental_restore_via_create is set"
    )
    migration_step_seconds: float = Field(
        300.0, gt=0, le=3600, description="time limit of a checkpoint and of a push, each"
    )
    freeze_timeout: float = Field(10.0, gt=0, le=120, description="time limit of a freeze, which is undone afterwards")
    gpu_state_dir: Path = Field(
        Path("/var/lib/podium/gpu-state"), description="the agent's notes about checkpointed GPU state"
    )
    migration_records_dir: Path = Field(
        Path("/var/lib/podium/migrations"), description="the agent's records of migration artifacts"
    )
    cuda_lock_seconds: float = Field(10.0, gt=0, le=600, description="as in the agent's settings")
    cuda_copy_seconds: float = Field(120.0, gt=0, le=3600, description="as in the agent's settings")
    proc: Path = Path("/proc")
    host_root: Path = Path("/proc/1/root")
    driver_library_path: Path | None = Field(None, description="as in the agent's settings")
    cgroup_root: Path = Path("/sys/fs/cgroup")

    @property
    def driver_files(self) -> DriverFiles:
        return DriverFiles(self.proc, self.host_root, self.driver_library_path)
