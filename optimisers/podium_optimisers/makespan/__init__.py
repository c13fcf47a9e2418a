"""(Pm,Pk)||Cmax: n independent tasks, m CPUs and k GPUs, the earliest end of all. For `podium optimise makespan`.

Every method of `registry` takes an `Instance` and gives a `Schedule` with a certified lower bound.
Formulas and sources: docs/optimisers-makespan.md.
"""
