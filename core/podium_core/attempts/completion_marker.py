"""Parser of completion markers: the small file with which a script completes a checkpoint. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from podium_core.attempts.lost_work import CompletionMarker

MARKER = "podium-checkpoint.json"
REQUEST = "podium-checkpoint-request"  # Podium creates this file when it wants a checkpoint now
MARKER_BYTES = 4096
_ONE_LINE = bytes.maketrans(b"\t\r\n", b"   ")  # as the gate sends it


class _Marker(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True, strict=True)

    step: float = Field(ge=0, allow_inf_nan=False)
    path: str = "."
    on_request: bool = False


_MARKER: TypeAdapter[_Marker] = TypeAdapter(_Marker)
_STEP: TypeAdapter[float] = TypeAdapter(float, config=ConfigDict(strict=True, allow_inf_nan=False))


def parse_completion_marker(text: bytes) -> CompletionMarker | None:
    """Parse a bare number (the step) or an object that contains it; return None for any other text."""
    if not 0 < len(text) <= MARKER_BYTES:
        return None
    line = text.translate(_ONE_LINE)
    try:
        if not line.strip().startswith(b"{"):
            step = _STEP.validate_json(line)
            return CompletionMarker(step) if step >= 0 else None
        marker = _MARKER.validate_json(line)
    except ValidationError:
        return None
    path = PurePosixPath(marker.path)
    if path.is_absolute() or ".." in path.parts or "\0" in marker.path:
        return None
    return CompletionMarker(marker.step, str(path), marker.on_request)
