"""The virtual-time engine: jobs that need gangs of GPUs, run under a policy, with what a restart or a move costs.

The preemptive, predicted, hybrid and learned policies run on it, and the gymnasium environment is it. See
docs/optimisers-preemption.md.
"""
