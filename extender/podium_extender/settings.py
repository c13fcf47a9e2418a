"""Settings of the extender from the environment (`PODIUM_*`), read once by `main`."""

from __future__ import annotations

from pydantic import Field, field_validator

from podium_cluster.settings import ClusterSettings
from podium_core.placement.policies.registry import DEFAULT, placement_policy
from podium_extender.state.assumptions import ASSUME_SECONDS
from podium_extender.verbs.node_selection import SCORED_NODES


class ExtenderSettings(ClusterSettings):
    """Settings of the extender, in addition to those of every component."""

    extender_host: str = Field(
        "127.0.0.1", description="address of the verbs; loopback, because kube-scheduler runs in the same pod"
    )
    extender_port: int = Field(8888, ge=0, le=65535, description="port of the verbs; 0 = any free port")
    stale_seconds: float = Field(
        60.0, gt=0, description="a node without a report for longer than this is unknown: it gets the middle score"
    )
    body_limit: int = Field(64 * 2**20, gt=0, description="maximum bytes of a request; a larger one gets status 413")
    max_requests: int = Field(
        32, gt=0, description="maximum of concurrent requests; others get status 503 (kube-scheduler sends one or two)"
    )
    evictions_per_minute: int = Field(
        60, ge=1, description="maximum of trials preempted for more important pods in any 60 s"
    )
    minimum_run_seconds: float = Field(
        60.0, ge=0, description="a trial that started less than this ago is preempted only if no other can be"
    )
    assume_seconds: float = Field(
        ASSUME_SECONDS,
        gt=0,
        description="time for which a pod counts on its best node while its binding is not observed",
    )
    wakes_per_second: float = Field(20.0, gt=0, description="maximum average rate of retries of refused pods")
    wakes_at_once: int = Field(50, gt=0, description="maximum burst of retries of refused pods")
    scheduler_name: str = Field(
        "podium", min_length=1, description="name of the scheduler whose pods count on their nodes"
    )
    scored_nodes: int = Field(
        SCORED_NODES, ge=1, description="maximum of nodes in a response of filter for a pod without soft preferences"
    )
    watch_all_pods: bool = Field(
        True, description="watch the pods of all schedulers for free CPUs and affinities; else only GPUs count"
    )
    placement: str = Field(DEFAULT, description="placement policy for scores; see docs/explanation/placement.md")

    @field_validator("placement")
    @classmethod
    def _known(cls, name: str) -> str:
        return placement_policy(name).name
