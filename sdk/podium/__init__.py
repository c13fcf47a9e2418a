"""Podium for training scripts: `from podium import trial` reads parameters, reports metrics and saves checkpoints."""

__version__ = "0.1.0"
