"""Values that all parts of the core share: trials, GPUs, snapshots, actions, phases. No I/O, no clock, no pydantic."""
