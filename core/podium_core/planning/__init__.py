"""The planner: from a snapshot to a plan (slots, creation, run queues, completion, ETA).

The package is pure. It is above policies, placement and curves.
"""
