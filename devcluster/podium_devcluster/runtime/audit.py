"""The audit log of kube-apiserver: which requests it records, and how large it may grow. Pure.

The log is evidence for tests: the user and object of each request, and the answer. It holds no bodies, except those of
SubjectAccessReviews: a kubelet asks by them whether a caller of its own API is authorised.
"""

from __future__ import annotations

import json
from typing import Any

from podium_devcluster.paths import ClusterPaths

FILE_MEGABYTES = 10
BACKUPS = 8  # so a log takes 90 MB at most

# components of Kubernetes: they make most requests, and no test asks what they may do
COMPONENTS = ("system:apiserver", "system:kube-controller-manager", "system:kube-scheduler", "system:kube-proxy")
COMPONENT_GROUPS = ("system:nodes", "system:serviceaccounts:kube-system")
HEALTH = ("/healthz*", "/livez*", "/readyz*", "/metrics")


def policy() -> str:
    """Return the audit policy, as JSON. The first matching rule decides."""
    reviews = {"group": "authorization.k8s.io", "resources": ["subjectaccessreviews"]}
    rules: list[dict[str, Any]] = [
        {"level": "None", "nonResourceURLs": list(HEALTH)},
        {"level": "RequestResponse", "verbs": ["create"], "resources": [reviews]},
        {"level": "None", "users": list(COMPONENTS)},
        {"level": "None", "userGroups": list(COMPONENT_GROUPS)},
        {"level": "Metadata"},
    ]
    content = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        # the answer is known at the later stages
        "omitStages": ["RequestReceived"],
        "omitManagedFields": True,
        "rules": rules,
    }
    return json.dumps(content, indent=1)


def flags(paths: ClusterPaths) -> dict[str, str]:
    """Return the flags of kube-apiserver. Each line is written before the request's handler ends."""
    return {
        "audit-policy-file": str(paths.audit_policy),
        "audit-log-path": str(paths.audit / "audit.log"),
        "audit-log-mode": "blocking",
        "audit-log-maxsize": str(FILE_MEGABYTES),
        "audit-log-maxbackup": str(BACKUPS),
    }
