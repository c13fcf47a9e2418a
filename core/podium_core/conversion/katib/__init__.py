"""Katib's Experiment: search, parameters, metrics and trial template, one module each. `experiment` is the entry."""
