"""What moving can be told, from the environment (`PODIUM_*`); every path can be moved for tests. Used by `__main__`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from podium_agent.migration.kubelet import ACCOUNT
from podium_cluster.settings import ClusterSettings


class MoveSettings(ClusterSettings):
    registry: str = Field(min_length=1, description="host[:port] of the cluster's own registry for checkpoints")
    registry_user: str = Field("", description="of the registry; empty: it asks for none")
    registry_password: str = ""
    kubelet_authority: Path = Field(ACCOUNT / "ca.crt", description="what the kubelet's certificate is verified with")
    kubelet_token: Path = Field(ACCOUNT / "token", description="of an account that may create nodes/checkpoint")
    checkpoints_dir: Path = Field(Path("/var/lib/kubelet/checkpoints"), description="where the runtime writes archives")
    restore_switched_on: bool = Field(False, description="containerd's enable_experimental_restore_via_create is set")
    move_seconds: float = Field(300.0, gt=0, le=3600, description="for a checkpoint, and for a push")
    freeze_timeout: float = Field(10.0, gt=0, le=120, description="a freeze that takes longer is undone")
    gpu_state_dir: Path = Field(
        Path("/var/lib/podium/parked"), description="the agent's notes of what was moved off GPUs"
    )
    traces_dir: Path = Field(Path("/var/lib/podium/leaving"), description="the agent's notes of what moving left")
    cuda_lock_seconds: float = Field(10.0, gt=0, le=600, description="as the agent's")
    cuda_copy_seconds: float = Field(120.0, gt=0, le=3600, description="as the agent's: GPU memory moved, either way")
    proc: Path = Path("/proc")
    cgroup_root: Path = Path("/sys/fs/cgroup")
