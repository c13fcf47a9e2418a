"""The chart: rendered objects, the schema of the values, and a dry run on a real API server."""

from __future__ import annotations

import json
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from chart_rendering import CHART, EVERYTHING, Objects, Tool, make_tool, one, parse, pod_specs, render

pytestmark = pytest.mark.integration
DIGEST = f"sha256:{'0123456789abcdef' * 4}"


@pytest.fixture(scope="module")
def tool(binary: Callable[[str], Path], kubeconfig: Path) -> Tool:
    return make_tool(binary, kubeconfig)


@pytest.fixture(scope="module")
def namespace(tool: Tool) -> Iterator[str]:
    """A namespace that warns of every pod that the Pod Security Standard `restricted` refuses."""
    name = f"chart-{uuid.uuid4().hex[:6]}"
    assert tool("kubectl", "create", "namespace", name).returncode == 0
    # admission of pods requires it, and its controller may not run here
    tool("kubectl", "create", "serviceaccount", "default", f"--namespace={name}")
    tool("kubectl", "label", "namespace", name, "pod-security.kubernetes.io/warn=restricted")
    yield name
    tool("kubectl", "delete", "namespace", name, "--wait=false")


def test_lint(tool: Tool) -> None:
    done = tool("helm", "lint", "--strict", "--kube-version=1.36.3", str(CHART))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("values", ["", EVERYTHING])
def test_a_real_api_server_accepts_every_object(tool: Tool, namespace: str, values: str) -> None:
    text = render(tool, values, namespace=namespace)
    done = tool("kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", "-", given=text)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(parse(text))
    # only the agent's daemon set violates the Pod Security Standard "restricted"
    warned = [line for line in done.stderr.splitlines() if "PodSecurity" in line]
    assert len(warned) == 1, warned
    assert "host namespaces (hostPID=true)" in warned[0]


@pytest.mark.parametrize("values", ["", EVERYTHING])
def test_no_role_has_a_wildcard_or_access_to_secrets(tool: Tool, values: str) -> None:
    objects = parse(render(tool, values))
    roles = [item for item in objects if item["kind"] in ("Role", "ClusterRole")]
    assert len(roles) >= 6
    for role in roles:
        for rule in role["rules"]:
            for field in ("apiGroups", "resources", "verbs", "resourceNames", "nonResourceURLs"):
                assert not any("*" in value for value in rule.get(field, [])), (role["metadata"]["name"], rule)
            assert "secrets" not in rule["resources"]
    bound = {item["roleRef"]["name"] for item in objects if item["kind"].endswith("RoleBinding")}
    given = {role["metadata"]["name"] for role in roles}
    assert bound - given == {
        "system:kube-scheduler",
        "system:volume-scheduler",
        "extension-apiserver-authentication-reader",
    }


@pytest.mark.parametrize(("values", "watches"), [("", True), ("extender.watchAllPods=false", False)])
def test_the_extender_can_read_all_pods_and_nodes_and_change_none(tool: Tool, values: str, watches: bool) -> None:
    objects = parse(render(tool, values))
    rules = one(objects, "ClusterRole", "podium-scheduler")["rules"]
    rights = {kind: rule["verbs"] for rule in rules if rule["apiGroups"] == [""] for kind in rule["resources"]}
    assert rights["nodes"] == ["list", "watch"]
    assert rights["pods"] == ["get", "list", "watch"]
    (extender,) = (c for c in pod_specs(objects)["podium-scheduler"]["containers"] if c["name"] == "extender")
    assert {"name": "PODIUM_WATCH_ALL_PODS", "value": str(watches).lower()} in extender["env"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("agent.slotsPerGPU=0", "'/agent/slotsPerGPU': minimum: got 0, want 1"),
        ("agent.share=2", "additional properties 'share' not allowed"),
        ("agents.shares=2", "additional properties 'agents' not allowed"),
        ("agent.driver.libraryPath=lib", "'/agent/driver/libraryPath'"),
        ("agent.trialMounts[0].hostPath=lib", "'/agent/trialMounts/0'"),
        ("agent.tolerations[0].effect=Never", "'/agent/tolerations/0/effect'"),
        ("agent.extraEnv[0].value=x", "missing property 'name'"),
        ("image.repository=", "'/image/repository': minLength"),
        ("image.repository=localhost/podium:dev", "'/image/repository'"),
        ("image.digest=sha256:abc", "'/image/digest': 'sha256:abc' does not match pattern '^(sha256:[0-9a-f]{64})?$'"),
        (f"image.digest={'a' * 64}", "'/image/digest'"),
        (f"image.digest=sha256:{'A' * 64}", "'/image/digest'"),
        (f"image.digest=sha512:{'a' * 128}", "'/image/digest'"),
        ("scheduler.image=mine/scheduler:1@sha256:abc", "'/scheduler/image': 'mine/scheduler:1@sha256:abc'"),
        ("image.pullPolicy=Sometimes", "'/image/pullPolicy': value must be one of"),
        ("logLevel=loud", "'/logLevel': value must be one of"),
        ("trialPriorityClass.value=1", "'/trialPriorityClass/value': maximum"),
        ("trials.runtimeClassName=Own", "'/trials/runtimeClassName': 'Own' does not match pattern"),
        ("agent.runtimeClassName=1", "'/agent/runtimeClassName': got number, want string"),
        ("gpus.mode=rented", "'/gpus/mode': value must be one of"),
        ("gpus.reservations.max=0", "'/gpus/reservations/max': minimum"),
        ("scheduler.name=default-scheduler", "'/scheduler/name'"),
        ("scheduler.weight=0", "'/scheduler/weight': minimum"),
        ("extender.watchAllPods=1", "'/extender/watchAllPods': got number, want boolean"),
        ("scheduler.replicas=0", "'/scheduler/replicas': minimum"),
        ("extender.port=80", "'/extender/port': minimum"),
        ("extender.staleSeconds=0", "'/extender/staleSeconds': exclusiveMinimum"),
        ("hooks.thawSeconds=0", "'/hooks/thawSeconds': minimum"),
        ("operator.resources.request.cpu=1", "additional properties 'request' not allowed"),
        ("operator.resources.requests.cpu=lots", "'/operator/resources/requests/cpu'"),
        ("operator.rebalancing.minStaySeconds=0", "'/operator/rebalancing/minStaySeconds': minimum"),
        ("admissionPolicies.workloadControllers={it's}", "'/admissionPolicies/workloadControllers/0'"),
        ("networkPolicy.enabled=maybe", "'/networkPolicy/enabled': got string, want boolean"),
        ("metrics.serviceMonitor.interval=often", "'/metrics/serviceMonitor/interval'"),
        ("metrics.dashboards.labels.a=1", "'/metrics/dashboards/labels/a': got number, want string"),
        ("metrics.alerts.runbook=page", "'/metrics/alerts/runbook'"),
        ("dashboard.enabled=1", "'/dashboard/enabled': got number, want boolean"),
        ("dashboard.replicas=0", "'/dashboard/replicas': minimum"),
        ("dashboard.ingress.enabled=true", "additional properties 'ingress' not allowed"),
        ("dashboard.from[0]=ingress", "'/dashboard/from/0': got string, want object"),
        ("metrics.alert.enabled=true", "additional properties 'alert' not allowed"),
    ],
)
def test_the_schema_refuses_invalid_values_and_names_them(tool: Tool, values: str, message: str) -> None:
    done = tool("helm", "template", "podium", str(CHART), "--kube-version=1.36.3", "--set", values)
    assert done.returncode != 0
    assert message in done.stderr


def test_all_pods_but_the_agent_are_restricted_and_all_have_limits(tool: Tool) -> None:
    for name, spec in pod_specs(parse(render(tool, EVERYTHING))).items():
        containers = spec["containers"]
        assert spec["imagePullSecrets"] == [{"name": "secret"}], name
        assert all(container["resources"]["limits"]["memory"] for container in containers), name
        assert all(container["resources"]["requests"]["cpu"] for container in containers), name
        assert all(container["securityContext"]["readOnlyRootFilesystem"] for container in containers), name
        if name == "podium-agent":
            assert spec["hostPID"]
            continue
        assert spec["securityContext"]["runAsNonRoot"], name
        assert not any("hostPath" in volume for volume in spec.get("volumes", [])), name
        assert all(c["securityContext"]["capabilities"] == {"drop": ["ALL"]} for c in containers), name


def test_every_component_is_probed_on_its_own_port(tool: Tool) -> None:
    for name, spec in pod_specs(parse(render(tool))).items():
        if name in ("podium-thaw", "podium-unthaw", "podium-release", "podium-test-slot"):
            continue
        for container in spec["containers"]:
            ports = {port["name"] for port in container["ports"]}
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                assert container[probe]["httpGet"]["port"] in ports, (name, probe)


def test_labels_reach_every_object_and_every_pod(tool: Tool) -> None:
    for item in parse(render(tool, "commonLabels.team=vision")):
        assert item["metadata"]["labels"]["team"] == "vision", item["metadata"]["name"]
        template = item.get("spec", {}).get("template", {})
        assert not template or template["metadata"]["labels"]["team"] == "vision"


@pytest.mark.parametrize(
    ("version", "values", "image"),
    [
        ("1.36.3", "", "registry.k8s.io/kube-scheduler:v1.36.3"),
        ("1.33.4-gke.1006000", "", "registry.k8s.io/kube-scheduler:v1.33.4"),
        ("1.34.1+k3s1", "", "registry.k8s.io/kube-scheduler:v1.34.1"),
        ("1.36.3", "scheduler.image=mine/scheduler:1", "mine/scheduler:1"),
    ],
)
def test_the_image_of_the_scheduler_has_the_version_of_the_cluster(
    tool: Tool, version: str, values: str, image: str
) -> None:
    objects = parse(render(tool, values, version=version))
    containers = one(objects, "Deployment", "podium-scheduler")["spec"]["template"]["spec"]["containers"]
    assert {container["name"]: container["image"] for container in containers}["kube-scheduler"] == image


@pytest.mark.parametrize("tag", ["", "1.2"])
def test_a_digest_decides_the_image_of_every_pod_and_of_the_pods_that_the_operator_creates(
    tool: Tool, tag: str
) -> None:
    scheduler = f"registry.example:5000/kube-scheduler:v1.36.3@sha256:{'1' * 64}"
    values = f"image.repository=registry.example:5000/podium,image.tag={tag},image.digest={DIGEST}"
    text = render(tool, f"{EVERYTHING},gpus.mode=dedicated,{values},scheduler.image={scheduler}")
    expected = f"registry.example:5000/podium:{tag or 'dev'}@{DIGEST}"
    specs = pod_specs(parse(text))
    assert set(specs) == {
        "podium-agent", "podium-dashboard", "podium-operator", "podium-scheduler", "podium-test-slot",
        "podium-thaw", "podium-release", "podium-unthaw",
    }  # fmt: skip
    images = {(name, c["name"]): c["image"] for name, spec in specs.items() for c in spec["containers"]}
    assert images.pop(("podium-scheduler", "kube-scheduler")) == scheduler
    assert set(images.values()) == {expected}
    (operator,) = specs["podium-operator"]["containers"]
    assert {"name": "PODIUM_IMAGE", "value": expected} in operator["env"]
    # no image is named anywhere else
    named = [word for word in text.replace('"', " ").split() if "podium:" in word or "kube-scheduler:" in word]
    assert all(word in (expected, scheduler) for word in named), named


def test_an_old_cluster_is_refused(tool: Tool) -> None:
    done = tool("helm", "template", "podium", str(CHART), "--kube-version=1.28.0")
    assert done.returncode != 0
    assert "requires kubeVersion" in done.stderr


@pytest.mark.parametrize(("replicas", "elected"), [(1, False), (2, True)])
def test_the_schedulers_configuration(tool: Tool, replicas: int, elected: bool) -> None:
    objects = parse(render(tool, f"scheduler.replicas={replicas},extender.port=9999,scheduler.name=other"))
    config = yaml.safe_load(one(objects, "ConfigMap", "podium-scheduler")["data"]["scheduler.yaml"])
    extender = config["extenders"][0]
    assert extender["urlPrefix"] == "http://127.0.0.1:9999"
    assert extender["nodeCacheCapable"] is True
    assert extender["httpTimeout"] == "1s"
    assert extender["managedResources"] == [
        {"name": name, "ignoredByScheduler": False} for name in ("podium.dev/gpu", "podium.dev/gpu-exclusive")
    ]
    assert [profile["schedulerName"] for profile in config["profiles"]] == ["other"]
    assert config["clientConnection"] == {"qps": 500, "burst": 1000}
    assert config["leaderElection"]["leaderElect"] is elected
    assert config["leaderElection"]["resourceName"] != "kube-scheduler"
    role = one(objects, "Role", "podium-scheduler")
    writes = [rule for rule in role["rules"] if {"update", "patch"} & set(rule["verbs"])]
    assert [rule["resourceNames"] for rule in writes] == ([["podium-scheduler"]] if elected else [])


@pytest.mark.parametrize(
    ("placement", "counts"), [("auto", None), ("binpack", "MostAllocated"), ("spread", "LeastAllocated")]
)
def test_the_scheduler_scores_slots_as_the_placement_does(tool: Tool, placement: str, counts: str | None) -> None:
    objects = parse(render(tool, f"extender.placement={placement}"))
    config = yaml.safe_load(one(objects, "ConfigMap", "podium-scheduler")["data"]["scheduler.yaml"])
    profile = config["profiles"][0]
    plugins = {plugin["name"]: plugin["args"] for plugin in profile["pluginConfig"]}
    assert "PodTopologySpread" in plugins
    assert plugins.get("NodeResourcesFit", {}).get("scoringStrategy", {}).get("type") == counts
    off = profile.get("plugins", {}).get("score", {}).get("disabled", [])
    assert off == ([] if counts else [{"name": "NodeResourcesFit"}])


def test_uninstall_resumes_all_trials_and_a_new_install_may_suspend_again(tool: Tool) -> None:
    objects = parse(render(tool, "hooks.thawSeconds=90"))
    thaw, undo = one(objects, "Job", "podium-thaw"), one(objects, "Job", "podium-unthaw")
    assert thaw["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    assert undo["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    arguments = {
        job["metadata"]["name"]: job["spec"]["template"]["spec"]["containers"][0]["args"] for job in (thaw, undo)
    }
    assert arguments == {
        "podium-thaw": ["thaw", "--all", "--wait", "90"],
        "podium-unthaw": ["thaw", "--all", "--undo"],
    }
    release = one(objects, "Job", "podium-release")
    assert release["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    weights = [int(job["metadata"]["annotations"]["helm.sh/hook-weight"]) for job in (thaw, release)]
    assert weights[0] < weights[1], (
        "hooks with equal weights run by name, so jobs would be released before trials are thawed"
    )
    (container,) = release["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python3", "-m", "podium_operator.jobs.finalizers"]
    # the account of the hooks is a hook itself, created before the jobs and deleted after them
    for kind in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding"):
        notes = one(objects, kind, "podium-hooks")["metadata"]["annotations"]
        assert set(notes["helm.sh/hook"].split(",")) == {"pre-delete", "pre-install", "pre-upgrade"}
        assert int(notes["helm.sh/hook-weight"]) < min(weights)
        assert "hook-succeeded" in notes["helm.sh/hook-delete-policy"]


def test_trials_have_a_low_priority_class_that_preempts_no_pod(tool: Tool) -> None:
    def of(values: str) -> tuple[list[str], dict[str, str]]:
        objects = parse(render(tool, values))
        classes = [item["metadata"]["name"] for item in objects if item["kind"] == "PriorityClass"]
        containers = one(objects, "Deployment", "podium-operator")["spec"]["template"]["spec"]["containers"]
        return classes, {entry["name"]: entry.get("value") for entry in containers[0]["env"]}

    classes, env = of("image.tag=1.2")
    assert classes == ["podium-system", "podium-trial"]
    assert env["PODIUM_TRIAL_PRIORITY_CLASS"] == "podium-trial"
    assert env["PODIUM_IMAGE"] == "localhost/podium:1.2"
    made = one(parse(render(tool)), "PriorityClass", "podium-trial")
    assert (made["value"], made["preemptionPolicy"], made["globalDefault"]) == (-1, "Never", False)
    classes, env = of("trialPriorityClass.create=false,trialPriorityClass.name=mine")
    assert (classes, env["PODIUM_TRIAL_PRIORITY_CLASS"]) == (["podium-system"], "mine")
    classes, env = of("trialPriorityClass.name=")
    assert classes == ["podium-system"]
    assert "PODIUM_TRIAL_PRIORITY_CLASS" not in env


def test_runtime_classes_of_agent_and_trials(tool: Tool) -> None:
    """With a runtime class, NVIDIA's container runtime provides the driver to the agent, with all GPUs of the node."""
    driver = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
    for values, name in (("", None), ("agent.runtimeClassName=nvidia,trials.runtimeClassName=nvidia", "nvidia")):
        objects = parse(render(tool, values))
        specs = pod_specs(objects)
        assert {key: spec.get("runtimeClassName") for key, spec in specs.items() if key == "podium-agent"} == {
            "podium-agent": name
        }
        assert not any("runtimeClassName" in spec for key, spec in specs.items() if key != "podium-agent")
        agent, operator = (
            {one["name"]: one.get("value") for one in specs[key]["containers"][0]["env"]}
            for key in ("podium-agent", "podium-operator")
        )
        assert {key: value for key, value in agent.items() if key.startswith("NVIDIA")} == (driver if name else {})
        assert operator.get("PODIUM_TRIAL_RUNTIME_CLASS") == name


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ("", "system-node-critical"),
        ("agent.priorityClassName=", "podium-system"),
        ("agent.priorityClassName=,priorityClass.create=false,priorityClass.name=", None),
    ],
)
def test_the_agent_is_not_evicted_before_its_trials(tool: Tool, values: str, name: str | None) -> None:
    spec = one(parse(render(tool, values)), "DaemonSet", "podium-agent")["spec"]["template"]["spec"]
    assert spec.get("priorityClassName") == name


def test_reservations_have_a_class_below_the_trials_and_both_components_are_configured(tool: Tool) -> None:
    objects = parse(render(tool, "gpus.mode=reservations,gpus.reservations.max=3"))
    lowest, trials = (one(objects, "PriorityClass", name) for name in ("podium-reservation", "podium-trial"))
    assert lowest["value"] < trials["value"]
    assert lowest["preemptionPolicy"] == "Never"
    specs = pod_specs(objects)
    operator = {e["name"]: e.get("value") for e in specs["podium-operator"]["containers"][0]["env"]}
    assert operator["PODIUM_GPU_MODE"] == "reservations"
    assert operator["PODIUM_RESERVATION_PRIORITY_CLASS"] == "podium-reservation"
    assert operator["PODIUM_RESERVATION_MAX"] == "3"
    agent = {e["name"]: e.get("value") for e in specs["podium-agent"]["containers"][0]["env"]}
    assert agent["PODIUM_GPU_MODE"] == "reservations"
    dedicated = render(tool)
    assert "podium-reservation" not in dedicated
    assert "PODIUM_GPU_MODE" not in dedicated


def test_the_chart_contains_the_crds() -> None:
    names = {yaml.safe_load(path.read_text())["metadata"]["name"] for path in (CHART / "crds").glob("*.yaml")}
    plurals = ("gpunodes", "gpuqueues", "hyperparamjobs", "hyperparamtrials")
    assert names == {f"{plural}.podium.dev" for plural in plurals}


def test_the_cluster_accepts_the_first_job_in_the_notes(tool: Tool, namespace: str) -> None:
    done = tool("helm", "install", "notes", str(CHART), f"--namespace={namespace}", "--dry-run=server")
    assert done.returncode == 0, done.stderr
    example = done.stdout.split("<<'END'\n")[1].split("     END\n")[0]
    taken = tool("kubectl", "apply", "--dry-run=server", "-f", "-", given=textwrap.dedent(example))
    assert "hyperparamjob.podium.dev/first created" in taken.stdout, taken.stderr


def test_two_packages_of_the_chart_are_equal_and_name_the_images_version(
    tool: Tool, binary: Callable[[str], Path], tmp_path: Path
) -> None:
    from dist import package_chart
    from sbom import project_version

    archives = []
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        folder = tmp_path / str(number)
        archives.append(package_chart(binary("helm"), CHART, project_version(), folder, 1_764_000_000))
    assert archives[0].read_bytes() == archives[1].read_bytes()
    done = tool("helm", "template", "podium", str(archives[0]), "--kube-version=1.36.3", "--include-crds")
    assert done.returncode == 0, done.stderr
    images = {c["image"] for c in pod_specs(parse(done.stdout))["podium-operator"]["containers"]}
    assert images == {f"localhost/podium:{project_version()}"}
    kinds = [item["kind"] for item in parse(done.stdout)]
    assert kinds.count("CustomResourceDefinition") == 4


def test_optional_objects_are_off_by_default(tool: Tool) -> None:
    kinds = {item["kind"] for item in parse(render(tool))}
    assert not kinds & {"ServiceMonitor", "PrometheusRule", "Service"}
    assert not [name for name in names_of(parse(render(tool)), "ConfigMap") if "dashboard" in name]
    more = parse(
        render(
            tool,
            "metrics.serviceMonitor.enabled=true,networkPolicy.enabled=false,admissionPolicies.enabled=false,"
            "priorityClass.create=false,trialPriorityClass.create=false",
        )
    )
    kinds = {item["kind"] for item in more}
    assert {"ServiceMonitor", "Service"} <= kinds
    assert not kinds & {"PriorityClass", "NetworkPolicy", "ValidatingAdmissionPolicy"}


@pytest.mark.parametrize(
    ("value", "accounts"),
    [("null", "[]"), ("{system:serviceaccount:a:b,c@example.com}", "['system:serviceaccount:a:b','c@example.com']")],
)
def test_the_policy_of_workloads_names_their_controllers(tool: Tool, value: str, accounts: str) -> None:
    objects = parse(render(tool, f"admissionPolicies.workloadControllers={value}"))
    spec = one(objects, "ValidatingAdmissionPolicy", "podium-operator-workloads")["spec"]
    conditions = {entry["name"]: entry["expression"] for entry in spec["matchConditions"]}
    assert conditions["not-a-controller-of-workloads"] == f"!(request.userInfo.username in {accounts})"


def test_the_dashboard_is_off_by_default_and_reachable_by_the_named_pods_only(tool: Tool) -> None:
    component = "app.kubernetes.io/component"
    assert all(item["metadata"]["labels"][component] != "dashboard" for item in parse(render(tool)))
    ingress = "dashboard.from[0].namespaceSelector.matchLabels.name=ingress"
    objects = parse(render(tool, f"dashboard.enabled=true,{ingress}"))
    own = {item["kind"] for item in objects if item["metadata"]["labels"][component] == "dashboard"}
    kinds = {"Deployment", "Service", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "NetworkPolicy"}
    assert own == kinds
    template = one(objects, "Deployment", "podium-dashboard")["spec"]["template"]
    (container,) = template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert {name: str(ports[port]) for name, port in (("HTTP", "metrics"), ("PAGES", "pages"))} == {
        name: env[f"PODIUM_{name}_PORT"] for name in ("HTTP", "PAGES")
    }
    assert "PODIUM_PLAIN_HTTP" not in env
    service = one(objects, "Service", "podium-dashboard")["spec"]
    assert service["selector"].items() <= template["metadata"]["labels"].items()
    assert [port["targetPort"] for port in service["ports"]] == ["pages"]
    policy = one(objects, "NetworkPolicy", "podium-dashboard")["spec"]
    (rule,) = policy["ingress"]
    assert rule == {"ports": [{"port": "pages"}], "from": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}]}
    others = one(objects, "NetworkPolicy", "podium")["spec"]["ingress"]
    assert all(port["port"] != "pages" for entry in others for port in entry["ports"])
    plain = parse(render(tool, "dashboard.enabled=true,dashboard.plainHTTP=true,networkPolicy.enabled=false"))
    (container,) = one(plain, "Deployment", "podium-dashboard")["spec"]["template"]["spec"]["containers"]
    assert {"name": "PODIUM_PLAIN_HTTP", "value": "true"} in container["env"]
    assert not names_of(plain, "NetworkPolicy")


def test_the_dashboards_account_lists_and_reviews_and_nothing_else(tool: Tool) -> None:
    rules = one(parse(render(tool, "dashboard.enabled=true")), "ClusterRole", "podium-dashboard")["rules"]
    rights = {(kind, verb) for rule in rules for kind in rule["resources"] for verb in rule["verbs"]}
    shown = {(kind, verb) for kind in ("gpunodes", "hyperparamjobs", "hyperparamtrials") for verb in ("list", "watch")}
    assert rights == shown | {("tokenreviews", "create"), ("subjectaccessreviews", "create")}


def names_of(objects: Objects, kind: str) -> set[str]:
    return {item["metadata"]["name"] for item in objects if item["kind"] == kind}


def test_the_dashboards_are_config_maps_that_grafanas_sidecar_finds(tool: Tool, namespace: str) -> None:
    values = "metrics.dashboards.enabled=true,metrics.dashboards.annotations.grafana_folder=Podium"
    text = render(tool, values, namespace=namespace)
    objects = parse(text)
    for name in ("cluster", "search", "node", "extender"):
        found = one(objects, "ConfigMap", f"podium-dashboard-{name}")
        assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert found["metadata"]["annotations"] == {"grafana_folder": "Podium"}
        (file,) = found["data"].items()
        assert file[0] == f"podium-{name}.json"
        assert json.loads(file[1]) == json.loads((CHART / "monitoring" / f"dashboard-{name}.json").read_text())
    done = tool("kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", "-", given=text)
    assert done.returncode == 0, done.stderr
    other = parse(render(tool, "metrics.dashboards.enabled=true,metrics.dashboards.labels.grafana_dashboard=null"))
    assert "grafana_dashboard" not in one(other, "ConfigMap", "podium-dashboard-node")["metadata"]["labels"]


def test_the_alerts_are_a_prometheus_rule(tool: Tool) -> None:
    values = "metrics.alerts.enabled=true,metrics.alerts.labels.release=prometheus"
    rule = one(parse(render(tool, values)), "PrometheusRule", "podium")
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert rule["spec"] == yaml.safe_load((CHART / "monitoring" / "alerts.yaml").read_text())
    site = "https://docs.example/respond-to-alerts.html"
    other = one(parse(render(tool, f"{values},metrics.alerts.runbook={site}")), "PrometheusRule", "podium")
    links = [entry["annotations"]["runbook_url"] for entry in other["spec"]["groups"][0]["rules"]]
    assert len(links) == 7
    assert all(link.startswith(f"{site}#podium") for link in links)


def test_the_service_monitor_keeps_labels_of_metrics_and_adds_the_node(tool: Tool) -> None:
    monitor = one(parse(render(tool, "metrics.serviceMonitor.enabled=true")), "ServiceMonitor", "podium")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True
    assert endpoint["relabelings"] == [{"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}]
