"""Podium's decision core: pure functions and data, used by operator, extender, agent, command line and simulator."""

__version__ = "0.1.0"
