"""Reinforcement learning on the simulator: a gymnasium environment and three methods in numpy.

The package ships trained weights. See docs/explanation/optimisers/learning.md.
"""
