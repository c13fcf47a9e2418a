"""Builders and contracts for tests, also for authors of policies and searchers outside this repository."""
