"""When a search that exists runs on and ends: simulated from its present state, with an interval."""
