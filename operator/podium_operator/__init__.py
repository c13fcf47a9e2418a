"""Podium's operator: accepts jobs (kopf) and reconciles: observe the cluster, plan with the core, act, report."""
