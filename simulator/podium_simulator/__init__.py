"""Replay of scheduling policies on recorded learning curves: the policies of the cluster on virtual time. Pure; above
planning and policies.
"""
