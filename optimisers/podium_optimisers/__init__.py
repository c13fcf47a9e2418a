"""Scheduling algorithms from the literature, each with a certificate or a formula to check it against.

The packages are libraries without a cluster. `podium optimise` and `podium capacity` call two of them.
"""
