"""Devices and claims of DRA drivers: what claims request and have, and which devices are free."""

from __future__ import annotations

from typing import Any

from reservation_builders import claim, gpu_slice

from podium_operator.observe.dynamic_devices import DeviceClaim, free_devices, parse_claims

GPU = "gpu.nvidia.com"


def test_what_a_claim_requests_and_has() -> None:
    payload = claim("c", wants=2, device="gpu-1")
    payload["spec"]["devices"]["requests"] += [
        {"name": "all", "exactly": {"deviceClassName": GPU, "allocationMode": "All"}},
        {"name": "any", "firstAvailable": [{"name": "x", "deviceClassName": GPU}]},
        {"name": "nic", "exactly": {"deviceClassName": "nic"}},
    ]
    assert parse_claims([payload, claim("d", "others")]) == {
        ("lab", "c"): DeviceClaim({GPU: 2, "nic": 1}, frozenset({(GPU, "node-1", "gpu-1")})),
        ("others", "d"): DeviceClaim({GPU: 1}, frozenset()),
    }


def free(*slices: dict[str, Any], claims: tuple[dict[str, Any], ...] = ()) -> dict[str, int]:
    return dict(free_devices(slices, parse_claims(claims).values(), {GPU}))


def test_devices_that_no_claim_has_are_free() -> None:
    there = gpu_slice("gpu-0", "gpu-1", "gpu-2")
    assert free(there) == {"node-1": 3}
    assert free(there, claims=(claim("c", device="gpu-1"), claim("d"))) == {"node-1": 2}
    assert free(there, gpu_slice("gpu-0", node="node-2"), claims=(claim("c", device="gpu-0"),)) == {
        "node-1": 2,
        "node-2": 1,
    }


def test_devices_with_a_repelling_taint_are_not_free() -> None:
    there = gpu_slice("gpu-0", "gpu-1")
    there["spec"]["devices"][0]["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
    there["spec"]["devices"][1]["taints"] = [{"key": "warm", "effect": "None"}]
    assert free(there) == {"node-1": 1}


def test_slices_of_an_older_generation_or_another_driver_do_not_count() -> None:
    old, new, nic = gpu_slice("gpu-0", "gpu-1"), gpu_slice("gpu-0"), gpu_slice("nic-0")
    new["spec"]["pool"]["generation"] = 2
    nic["spec"]["driver"] = "nic.example"
    assert free(old, new, nic) == {"node-1": 1}
