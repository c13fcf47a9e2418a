"""Queues: how teams share the GPUs. Pure; the planner calls it, and only where the snapshot has queues."""
