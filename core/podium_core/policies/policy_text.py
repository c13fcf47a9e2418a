"""A policy as a user types it: `asha`, or with settings `asha:eta=3,onCut=stop`. Pure.

The comparisons of `podium simulate` call it; their results carry the typed text.
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
_EXACT = 2**53  # integers up to this one are exact as floats


class PolicyText(NamedTuple):
    name: str
    settings: Mapping[str, Scalar]

    def create(self) -> Policy:
        """Return the policy. Raises a PolicyError, as the registry does."""
        return create(self.name, self.settings)


def parse_policy(text: str) -> PolicyText:
    """Return name and settings; the values are not checked yet.

    Raises a PolicyError where a setting is not written as SETTING=VALUE.
    """
    name, colon, rest = text.partition(":")
    settings: dict[str, Scalar] = {}
    for part in rest.split(",") if colon else []:
        match = _SETTING.fullmatch(part)
        if match is None:
            cure = "write SETTING=VALUE with commas between, such as asha:eta=3,onCut=stop"
            raise InvalidSettingError(f"policy.settings: {part!r} is not a setting; {cure}")
        key, value = match.groups()
        if key in settings:
            raise InvalidSettingError(f"policy.settings.{key}: it is given twice; give one value")
        settings[key] = _value(value)
    return PolicyText(name, MappingProxyType(settings))


def _value(text: str) -> Scalar:
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and abs(number) < _EXACT else number
