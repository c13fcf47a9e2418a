"""The configuration of a W&B sweep: its parameters and its command, one module each. `sweep` is the entry."""
