"""Predictions from history: durations for predicted SJF, and arrivals by Holt-Winters.

See docs/optimisers-preemption.md.
"""
