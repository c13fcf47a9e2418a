"""Unschedulable and back-off queues, and the wake-ups of their pods."""
