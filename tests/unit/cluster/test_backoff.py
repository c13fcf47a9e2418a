"""Pauses between calls to the API server: exponential, bounded, with jitter, and at least what the server asked for."""

from __future__ import annotations

import random

import pytest

from podium_cluster.backoff import Backoff


@pytest.mark.parametrize("seed", range(20))
def test_jitter_shortens_a_pause_by_at_most_a_half(seed: int) -> None:
    backoff = Backoff(random.Random(seed), first=1.0, longest=8.0)
    for whole in (1.0, 2.0, 4.0, 8.0, 8.0):
        assert whole / 2 <= backoff.pause() <= whole


def test_two_clients_do_not_return_in_step() -> None:
    first, second = Backoff(random.Random(1)), Backoff(random.Random(2))
    assert [first.pause() for _ in range(3)] != [second.pause() for _ in range(3)]


def test_a_given_source_of_chance_gives_the_same_pauses_again() -> None:
    first, second = Backoff(random.Random(1)), Backoff(random.Random(1))
    assert [first.pause() for _ in range(3)] == [second.pause() for _ in range(3)]


def test_a_success_starts_again_with_the_shortest_pause() -> None:
    backoff = Backoff(random.Random(0), first=1.0, longest=60.0)
    for _ in range(5):
        backoff.pause()
    assert backoff.failures == 5
    backoff.reset()
    assert backoff.pause() <= 1.0


def test_the_pause_is_at_least_what_the_server_asked_for() -> None:
    backoff = Backoff(random.Random(0), first=0.1, longest=1.0)
    assert 30.0 <= backoff.pause(retry_after=30.0) <= 37.5
