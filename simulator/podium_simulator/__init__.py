"""Simulation of scheduling policies on recorded learning curves, on virtual time. Pure.

The simulator uses the cluster's own planner and policies.
"""
