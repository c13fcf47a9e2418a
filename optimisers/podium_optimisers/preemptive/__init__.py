"""Scheduling policies for the simulator: FIFO, SJF, SRPT, LAS with discrete queues, Gittins.

See docs/explanation/optimisers/preemption.md.
"""
