"""Replay of one sample of recorded curves under one policy."""
