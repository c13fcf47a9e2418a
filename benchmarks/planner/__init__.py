"""The operator's planner: cost of a tick as the cluster grows."""
