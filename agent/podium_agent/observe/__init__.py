"""What the agent sees of its node: GPUs, pods, cgroups and logs."""
