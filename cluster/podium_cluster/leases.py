"""New Leases, owned by the service account whose token created them.

`helm uninstall` takes a component's rights away before the component can give its Lease up. Kubernetes deletes the
Lease with its owner, so that the component of a new installation does not wait until it expires.
"""

from __future__ import annotations

from typing import Any

from podium_cluster.client import Api, ApiError, Manifest
from podium_cluster.resources import LEASES, SELF_REVIEWS

ACCOUNT_PREFIX = "system:serviceaccount:"


async def create_lease(api: Api, name: str, namespace: str, spec: Manifest, *, manager: str) -> Manifest:
    """Create a Lease that the caller's service account owns. Raises ApiError.

    It has no owner if the account is in another namespace, or if the caller has none. Only a create sets the owner: to
    change the owner of an existing object, some clusters ask for the right to delete it
    (OwnerReferencesPermissionEnforcement).
    """
    about: Manifest = {"name": name, "namespace": namespace}
    if (account := await _account(api, namespace)) is not None:
        about["ownerReferences"] = [account]
    body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": about, "spec": spec}
    return await api.create(LEASES, body, manager=manager)


async def _account(api: Api, namespace: str) -> Manifest | None:
    """Return a reference to the caller's account; None for another kind of caller. Every caller may ask that."""
    try:
        status = await api.review(SELF_REVIEWS)
    except ApiError as error:
        if error.transient:
            raise
        return None
    return owner_from(status, namespace)


def owner_from(status: Manifest, namespace: str) -> Manifest | None:
    """Return a reference to the account of a SelfSubjectReview; None if it is none of `namespace`. Pure."""
    info: Any = status.get("userInfo")
    if not isinstance(info, dict):
        return None
    user, uid = info.get("username"), info.get("uid")
    prefix = f"{ACCOUNT_PREFIX}{namespace}:"
    if not isinstance(user, str) or not user.startswith(prefix) or not isinstance(uid, str) or not uid:
        return None
    return {"apiVersion": "v1", "kind": "ServiceAccount", "name": user.removeprefix(prefix), "uid": uid}
