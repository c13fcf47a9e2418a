"""The whole system on virtual time: the operator's own planner with simulated nodes, agents, statuses, arrivals and
accidents. Pure; used by `podium simulate`, `podium plan` and the benchmarks.
"""
