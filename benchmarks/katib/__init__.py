"""Katib with whole GPUs and Podium with slots, on the same node of a real cluster."""
