"""How a job's metrics are read."""
