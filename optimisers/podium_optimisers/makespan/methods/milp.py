"""The optimum by HiGHS (scipy.optimize.milp), for up to about 40 tasks in seconds.

Minimise C with sum_i x_ji = 1 for each task j and sum_j p_ji x_ji <= C for each machine i. HiGHS detects by itself that
the machines of a side are identical; rows that order their loads made it slower on seven of eight instances.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from podium_optimisers.makespan.bounds import area_bound
from podium_optimisers.makespan.instance import MakespanInstance
from podium_optimisers.makespan.schedule import MakespanPlan

TIME_LIMIT = 30.0  # seconds; after that the best solution so far counts, with the bound that HiGHS proved
GAP = 1e-6  # relative distance of bound and schedule at which HiGHS may stop
BOUND_MARGIN = 1e-6  # relative: the row tolerance of HiGHS, subtracted from its bound


def solve(
    instance: MakespanInstance, start: MakespanPlan, time_limit: float = TIME_LIMIT, gap: float = GAP
) -> MakespanPlan:
    """Return the optimal plan with its bound.

    When the time is over, the result is the better of `start` and HiGHS' incumbent.
    """
    n, machines = instance.n, instance.machines
    end = float(instance.loads(start.machine_of).max())
    lower = area_bound(instance)[0]
    if lower >= end:
        return MakespanPlan(start.machine_of, bound=lower)
    table = instance.time_matrix()
    allowed = table <= end  # no better schedule has a longer task
    seconds = np.where(allowed, table, 0.0) / end
    # variables: x by task and machine, then the makespan in units of `end`
    variables = np.arange(n * machines)
    task, machine = np.divmod(variables, machines)
    once = csr_array((np.ones(variables.size), (task, variables)), (n, variables.size + 1))
    loads = csr_array(
        (
            np.append(seconds.ravel(), -np.ones(machines)),
            (np.append(machine, np.arange(machines)), np.append(variables, np.full(machines, variables.size))),
        ),
        (machines, variables.size + 1),
    )
    solution = milp(
        np.append(np.zeros(variables.size), 1.0),
        integrality=np.append(np.ones(variables.size), 0.0),
        bounds=Bounds(np.append(np.zeros(variables.size), lower / end), np.append(allowed.ravel().astype(float), 1.0)),
        constraints=[LinearConstraint(once, 1.0, 1.0), LinearConstraint(loads, -np.inf, 0.0)],
        options={"time_limit": time_limit, "mip_rel_gap": gap},
    )
    bound = max(lower, float(solution.mip_dual_bound or 0.0) * end * (1 - BOUND_MARGIN))
    if solution.x is None:
        return MakespanPlan(start.machine_of, bound=bound)
    machine_of = solution.x[:-1].reshape(n, machines).argmax(axis=1).astype(np.int64)
    better = float(instance.loads(machine_of).max()) < end
    return MakespanPlan(machine_of if better else start.machine_of, bound=bound)
