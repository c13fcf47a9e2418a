"""Static plans that are corrected while they run, and quotas above a dynamic scheduler. See
docs/optimisers-preemption.md.
"""
