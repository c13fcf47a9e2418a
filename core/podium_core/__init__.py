"""Podium's decisions as pure functions: schema, curves, policies, placement and planning."""
