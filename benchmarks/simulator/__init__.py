"""The simulated system: its speed, the effect of slots, and how close it is to the real cluster."""
