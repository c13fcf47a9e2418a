"""Simulation of the whole system on virtual time. Pure.

The operator's own planner runs with simulated nodes, agents, statuses, arrivals and faults. `podium simulate`,
`podium plan` and the benchmarks use it.
"""
