"""Podium, Ray Tune and Optuna on the same cores of one machine."""
