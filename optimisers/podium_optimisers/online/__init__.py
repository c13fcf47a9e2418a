"""Scheduling on m CPUs and k GPUs while tasks still arrive: rules with proven ratios, adversaries, reallocation.

Called by benchmarks/bench_theory_online.py and, as a library, by who places tasks as they come.
"""
