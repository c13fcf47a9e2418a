"""Prediction of final values from curves, and what is kept of it from cycle to cycle."""
