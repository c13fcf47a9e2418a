"""The optimum by HiGHS (scipy.optimize.milp): the yardstick of every other method, for up to about 40 tasks in seconds.

Least C with sum_i x_ji = 1 for each task j and sum_j p_ji x_ji <= C for each machine i. HiGHS finds by itself that
machines of a side are alike; rows that order their loads made it slower on seven of eight instances tried.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from podium_optimisers.makespan.bounds import area_bound
from podium_optimisers.makespan.instance import Instance
from podium_optimisers.makespan.schedule import Plan

TIME_LIMIT = 30.0  # seconds: then the best found so far counts, with the bound that HiGHS proved
GAP = 1e-6  # relative distance of bound and schedule at which HiGHS may stop
CARE = 1e-6  # relative: HiGHS' tolerance on its rows, taken off its bound


def solve(instance: Instance, start: Plan, time_limit: float = TIME_LIMIT, gap: float = GAP) -> Plan:
    """The optimal plan with its bound, or the better of `start` and HiGHS' incumbent when the time is over."""
    n, machines = instance.n, instance.machines
    end = float(instance.loads(start.machine_of).max())
    lower = area_bound(instance)[0]
    if lower >= end:
        return Plan(start.machine_of, bound=lower)
    table = instance.table()
    allowed = table <= end  # no better schedule has a longer task
    seconds = np.where(allowed, table, 0.0) / end
    # x is task by task, machine by machine; the last variable is the makespan, in units of `end`
    place = np.arange(n * machines)
    task, machine = np.divmod(place, machines)
    once = csr_array((np.ones(place.size), (task, place)), (n, place.size + 1))
    loads = csr_array(
        (
            np.append(seconds.ravel(), -np.ones(machines)),
            (np.append(machine, np.arange(machines)), np.append(place, np.full(machines, place.size))),
        ),
        (machines, place.size + 1),
    )
    found = milp(
        np.append(np.zeros(place.size), 1.0),
        integrality=np.append(np.ones(place.size), 0.0),
        bounds=Bounds(np.append(np.zeros(place.size), lower / end), np.append(allowed.ravel().astype(float), 1.0)),
        constraints=[LinearConstraint(once, 1.0, 1.0), LinearConstraint(loads, -np.inf, 0.0)],
        options={"time_limit": time_limit, "mip_rel_gap": gap},
    )
    bound = max(lower, float(found.mip_dual_bound or 0.0) * end * (1 - CARE))
    if found.x is None:
        return Plan(start.machine_of, bound=bound)
    machine_of = found.x[:-1].reshape(n, machines).argmax(axis=1).astype(np.int64)
    better = float(instance.loads(machine_of).max()) < end
    return Plan(machine_of if better else start.machine_of, bound=bound)
