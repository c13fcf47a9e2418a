"""Static plans with work stealing, and group quotas above a dynamic scheduler.

See docs/explanation/optimisers/preemption.md.
"""
