"""Benchmarks of the searchers: which algorithm proposes good points soonest."""
