"""Settings that all components share, from the environment (`PODIUM_*`).

Each component's settings class extends this one. A component validates its settings once at its start, and ends with an
error message if a value is invalid.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class ClusterSettings(BaseSettings):
    """Settings of the API client, the log and the health pages."""

    model_config = SettingsConfigDict(env_prefix="PODIUM_", extra="ignore", frozen=True)

    kubeconfig: Path | None = Field(
        None, description="kubeconfig file; else $KUBECONFIG, ~/.kube/config, the pod's account"
    )
    context: str | None = Field(None, description="context of the kubeconfig")
    namespace: str = Field("podium-system", description="the namespace that Podium itself runs in")
    request_timeout: float = Field(10.0, gt=0, le=300, description="seconds for one API call")
    log_format: Literal["json", "console"] = "json"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    http_host: str = Field("0.0.0.0", description="address of /healthz, /readyz and /metrics")
    http_port: int = Field(
        8080, ge=0, le=65535, description="port of /healthz, /readyz and /metrics; 0 = any free port"
    )
