"""Hyper-parameter search policies on recorded learning curves, and on the real cluster."""
