"""Knowledge of the operator: watch caches, cluster state, observations and the planner's snapshot."""
