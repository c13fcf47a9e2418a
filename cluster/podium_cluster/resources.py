"""The kinds of objects that Podium reads and writes, with their paths in the API."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

PAGE_SIZE = 500  # objects in one response of a list


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object in the API."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The value of `apiVersion` in manifests."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the REST path of a collection (without a name), an object, or its subresource.

        `namespace=None` means all namespaces, or an object without a namespace.
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name is not None:
            if self.namespaced and not namespace:
                raise ValueError(f"{self.kind} {name!r} needs a namespace; pass the namespace of the object")
            parts.append(quote(name, safe=""))
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects of one kind that a cache follows; selectors have the form of the Kubernetes API.

    `page` is the maximum number of objects in one response.
    """

    resource: Resource
    namespace: str | None = None
    labels: str | None = None
    fields: str | None = None
    page: int = PAGE_SIZE


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list: at most `limit` objects, after the page whose `metadata.continue` is `after`.

    `not_older_than` is a version that the list must contain; a server that is behind it refuses the request.
    """

    limit: int = PAGE_SIZE
    after: str = ""
    not_older_than: str = ""

    @property
    def query(self) -> dict[str, str]:
        """The query parameters. A continued list has the version of its first page, so it names none."""
        query = {"limit": str(self.limit)}
        if self.after:
            query["continue"] = self.after
        elif self.not_older_than:
            query |= {"resourceVersion": self.not_older_than, "resourceVersionMatch": "NotOlderThan"}
        return query


JOBS = Resource("podium.dev", "v1alpha1", "hyperparamjobs", "HyperParamJob")
TRIALS = Resource("podium.dev", "v1alpha1", "hyperparamtrials", "HyperParamTrial")
GPUNODES = Resource("podium.dev", "v1alpha1", "gpunodes", "GPUNode", namespaced=False)
GPUQUEUES = Resource("podium.dev", "v1alpha1", "gpuqueues", "GPUQueue", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
EVENTS = Resource("", "v1", "events", "Event")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
POD_GROUPS = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
JOBSETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
TRAIN_JOBS = Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob")
RUNTIMES = Resource("trainer.kubeflow.org", "v1alpha1", "trainingruntimes", "TrainingRuntime")
CLUSTER_RUNTIMES = Resource(
    "trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime", namespaced=False
)
SELF_REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)
