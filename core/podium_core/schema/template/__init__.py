"""The pod template of a job's trials."""
