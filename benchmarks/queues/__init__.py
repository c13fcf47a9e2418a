"""Queues on the real cluster: GPU-seconds by weight, and the return of a part that was lent."""
