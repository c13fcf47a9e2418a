"""Orders of jobs for the virtual-time engine: FIFO, SJF, SRPT, LAS with queues, Gittins. See
docs/optimisers-preemption.md.
"""
