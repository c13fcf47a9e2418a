"""Values that the rooms of the core share: trials, GPUs, snapshots, actions, phases. No I/O, no clock, no pydantic."""
