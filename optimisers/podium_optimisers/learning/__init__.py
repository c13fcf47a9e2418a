"""Reinforcement learning on the engine: a gymnasium environment, three methods in numpy, and their policies. See
docs/optimisers-learning.md.
"""
