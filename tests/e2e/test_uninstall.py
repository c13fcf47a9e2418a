"""`helm uninstall` during a search leaves nothing frozen, and no Lease.

It is the last test, because it removes Podium.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.e2e


def test_uninstall_with_suspended_trials_leaves_nothing_frozen_and_no_lease(site: Any) -> None:
    manifest = site.example("again")
    manifest["spec"]["trials"] |= {"max": 6, "parallel": 6, "maxSteps": 400}
    manifest["spec"]["policy"] = {"name": "round_robin", "settings": {"quantum": 3}}
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["command"] = [word.replace("--epochs=40", "--epochs=400") for word in container["command"]]
    site.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    site.until("two trials are frozen", lambda: len(site.frozen()) >= 2, 180)
    leases = ("get", "leases", "--namespace=podium-system", "--output=name")
    assert site.kubectl(*leases).split()
    helm = site.place.tool("helm")
    site.demo.call(site.place, [helm, "uninstall", "podium", "-n", "podium-system", "--wait"], 150, quiet=True)
    site.until("nothing is frozen", lambda: not site.frozen(), 60)
    site.until("Podium's pods are gone", lambda: not site.objects("pods", "-n", "podium-system"), 90)
    site.until("Podium's Leases are gone", lambda: not site.kubectl(*leases).split(), 30)
    site.kubectl("delete", "hyperparamjob", "again", "--timeout=60s", timeout=70)
