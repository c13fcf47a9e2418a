"""Queueing theory for GPU clusters: formulas, exact simulation, admission and capacity planning."""
