"""The workload of one trial in another tool, as the pod template of a job. `kinds` has the table of its kinds."""
