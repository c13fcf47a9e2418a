"""Observation of the cluster: watch caches, cluster state, observations and the planner's snapshot."""
