"""Decide whether a job can run, and what about it may not work: one answer for the operator and `podium validate`."""
