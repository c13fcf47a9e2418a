"""(Pm,Pk)||Cmax: minimise the makespan of n independent tasks on m CPUs and k GPUs.

Every method of `registry` takes a `MakespanInstance` and returns a `MakespanSchedule` with a certified lower bound.
Formulas and sources: docs/explanation/optimisers/makespan.md.
"""
