"""Predictions from history: durations for predicted SJF, and arrivals by Holt-Winters.

See docs/explanation/optimisers/preemption.md.
"""
