"""Settings of the extender, from the environment (`PODIUM_*`); read once by `main`."""

from __future__ import annotations

from pydantic import Field, field_validator

from podium_cluster.settings import ClusterSettings
from podium_core.placement.registry import DEFAULT, placement_policy
from podium_extender.state.assumptions import LONGEST
from podium_extender.verbs.top_k import SCORED


class ExtenderSettings(ClusterSettings):
    extender_host: str = Field(
        "127.0.0.1", description="address of the verbs: loopback, kube-scheduler is in the same pod"
    )
    extender_port: int = Field(8888, ge=0, le=65535, description="port of the verbs; 0 = any free one")
    stale_seconds: float = Field(
        60.0, gt=0, description="a node whose agent was silent for longer counts as unknown: middle score, never idle"
    )
    body_limit: int = Field(64 * 2**20, gt=0, description="bytes; a larger request is answered 413")
    max_requests: int = Field(
        32, gt=0, description="at once; more are answered 503, as they would be late: the scheduler has one or two"
    )
    evictions_per_minute: int = Field(
        60, ge=1, description="trials that may be told to go for more important pods in any 60 s"
    )
    minimum_run_seconds: float = Field(
        60.0, ge=0, description="a trial that began no longer ago is evicted only where nobody else can be"
    )
    assume_seconds: float = Field(
        LONGEST, gt=0, description="a pod counts for so long on the node that was best for it, if it is not seen bound"
    )
    wakes_per_second: float = Field(20.0, gt=0, description="refused pods that are woken for room, on average at most")
    wakes_at_once: int = Field(50, gt=0, description="the same, in one burst")
    scheduler_name: str = Field("podium", min_length=1, description="pods of this scheduler are counted on their nodes")
    scored_nodes: int = Field(
        SCORED, ge=1, description="nodes that filter hands on at most, the best, where no soft preference is stated"
    )
    watch_all_pods: bool = Field(
        True, description="know free CPUs and affinities of all schedulers' pods; else pods are packed by GPUs alone"
    )
    placement: str = Field(DEFAULT, description="how nodes are scored: see docs/explanation/placement.md")

    @field_validator("placement")
    @classmethod
    def _known(cls, name: str) -> str:
        return placement_policy(name).name
