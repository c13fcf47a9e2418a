"""Sharing a cluster of GPUs of different speed among jobs: time shares by LP and convex optimisation, then rounds.

Called by benchmarks/bench_theory_sharing.py and, as a library, by who wants to know what a fair share would be.
"""
