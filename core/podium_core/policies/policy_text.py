"""A policy as a user types it on a command line: `asha`, or `asha:eta=3,onCut=stop` with settings. Pure; called by the
contests of `podium simulate`, whose results bear what was typed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from podium_core.domain.snapshot import Scalar
from podium_core.policies.base import Policy
from podium_core.policies.registry import InvalidSettingError, create

_SETTING = re.compile(r"([A-Za-z]+)=([A-Za-z0-9.+-]+)")
_EXACT = 2**53  # whole numbers that a float keeps


class Written(NamedTuple):
    name: str
    settings: Mapping[str, Scalar]

    def create(self) -> Policy:
        """Raises a PolicyError, as the registry does."""
        return create(self.name, self.settings)


def read(text: str) -> Written:
    """Names and values are not checked yet. Raises a PolicyError where something is not written as a setting is."""
    name, colon, rest = text.partition(":")
    settings: dict[str, Scalar] = {}
    for part in rest.split(",") if colon else []:
        match = _SETTING.fullmatch(part)
        if match is None:
            cure = "write SETTING=VALUE with commas between, such as asha:eta=3,onCut=stop"
            raise InvalidSettingError(f"policy.settings: {part!r} is no setting; {cure}")
        key, value = match.groups()
        if key in settings:
            raise InvalidSettingError(f"policy.settings.{key}: it is given twice; give one value")
        settings[key] = _value(value)
    return Written(name, MappingProxyType(settings))


def _value(text: str) -> Scalar:
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and abs(number) < _EXACT else number
