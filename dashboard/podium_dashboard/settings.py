"""Settings of the dashboard in a cluster, from the environment (`PODIUM_*`)."""

from __future__ import annotations

from pydantic import Field

from podium_cluster.settings import ClusterSettings


class DashboardSettings(ClusterSettings):
    """Settings of `podium-dashboard`."""

    pages_host: str = Field("0.0.0.0", description="address of the pages")
    pages_port: int = Field(8265, ge=0, le=65535, description="port of the pages; 0 = any free port")
    plain_http: bool = Field(
        False, description="whether the sign-in page takes tokens also without TLS; loopback always may do without"
    )
