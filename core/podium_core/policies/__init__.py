"""Ranking policies: which of a job's trials should get a GPU first. Pure functions of a snapshot."""
