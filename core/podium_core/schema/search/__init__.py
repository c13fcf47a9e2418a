"""The search space of a job, and how it is searched."""
