"""Quantities in all of Kubernetes' forms, since a template may hold any of them."""

from __future__ import annotations

import pytest

from podium_core.schema.quantity import to_bytes, to_thousandths


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [
        ("2", 2000),
        ("0.5", 500),
        (".5", 500),
        ("1.", 1000),
        ("1500m", 1500),
        ("1e3", 10**6),
        ("2E-1", 200),
        ("100u", 1),
        ("1500001u", 1501),
        ("5n", 1),
        ("2k", 2 * 10**6),
        ("1E", 10**21),
        ("1Ei", 1000 * 2**60),
        ("1.5Gi", 1500 * 2**30),
    ],
)
def test_every_valid_quantity(text: str, thousandths: int) -> None:
    assert to_thousandths(text) == thousandths
    assert to_bytes(text) == -(-thousandths // 1000)


@pytest.mark.parametrize("text", ["", ".", "1 Gi", "1gi", "-1", "1e999999999", "1e3m", "Gi", "1mi", "nan"])
def test_invalid_quantities_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        to_thousandths(text)
