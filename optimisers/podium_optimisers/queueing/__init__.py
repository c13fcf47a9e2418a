"""Queueing theory of GPU clusters: formulas, exact simulation, admission and capacity. Called by `podium capacity`."""
