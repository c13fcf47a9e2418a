"""What happened in a run, simulated or real: the record, what the papers report of it, what must hold of it."""
