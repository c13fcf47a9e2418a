"""Observation of the node: GPUs, pods, cgroups and logs."""
