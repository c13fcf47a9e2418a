"""What the operator knows: watch caches, cluster state, observations and the planner's snapshot."""
