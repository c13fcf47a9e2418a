"""Recorded learning curves from JSON lines, CSV tables and TensorBoard folders."""
