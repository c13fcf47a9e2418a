"""Scheduling decisions: which stage runs when, in which context and on which stream. No clock and no I/O."""
