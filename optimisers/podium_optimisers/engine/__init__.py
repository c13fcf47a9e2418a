"""A discrete-event simulator of jobs that need several GPUs at once, with restart and migration costs.

The preemptive, predictive, hybrid and learned policies run on this engine. The gymnasium environment drives it step by
step. See docs/explanation/optimisers/preemption.md.
"""
