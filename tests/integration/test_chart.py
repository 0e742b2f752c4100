"""The Helm chart renders the objects of the kustomizations, and refuses values that are wrong."""

import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from frameworkcontroller import __version__
from frameworkcontroller.config.config import load_config
from tests.support.kubectl import find_helm, find_kubectl
from tests.unit.test_generated_pages import generator

ROOT: Final = Path(__file__).resolve().parents[2]
MANIFESTS: Final = ROOT / "manifests"
CHART: Final = MANIFESTS / "chart"

Json = dict[str, Any]
Key = tuple[str, str]

chart = generator("chart")

for program in (find_helm(), find_kubectl()):
    if isinstance(program, str):
        pytest.skip(program, allow_module_level=True)

HISTORY: Final = ("history.enabled=true", "dashboard.enabled=true")
FULL: Final = (
    *HISTORY,
    "kueue.enabled=true",
    "gang.enabled=true",
    "progress.enabled=true",
    "disruptionBudgets.enabled=true",
)
OVERLAYS: Final[dict[str, tuple[str, ...]]] = {
    "base": (),
    "overlays/single": ("controller.replicas=1",),
    "overlays/history": HISTORY,
    "overlays/full": FULL,
    "overlays/prometheus": ("monitoring.enabled=true",),
    "overlays/single-namespace": ("namespaceScoped.enabled=true",),
}
NO_OVERLAYS: Final = {"users", "overlays/single-namespace/cluster"}

SWITCHES: Final = {one.switch for one in chart.PARTS if one.text}
SETS: Final = [
    *({name} for name in sorted(SWITCHES)),
    {"history", "dashboard", "monitoring"},
    {"history", "history.archive.postgresql", "networkPolicies"},
    {"history", "dashboard", "networkPolicies", "monitoring", "critical"},
    {"critical", "progress", "gang"},
    {"kueue", "gang", "progress", "admission", "monitoring"},
    SWITCHES - {"history.archive"},
    SWITCHES | {"critical"},
]


def run_helm(*args: str) -> subprocess.CompletedProcess[str]:
    """Run helm without a cluster."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "KUBECONFIG": "/nonexistent"}
    command = [str(find_helm()), *args]
    return subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def rendered(namespace: str, *values: str) -> dict[Key, Json]:
    """The chart's objects with these values, except the hooks."""
    ran = run_helm("template", "r", str(CHART), f"--namespace={namespace}", *(f"--set={one}" for one in values))
    assert ran.returncode == 0, ran.stderr
    found = [one for one in yaml.load_all(ran.stdout, yaml.CSafeLoader) if one]
    assert len(found) == len({key_of(one) for one in found})
    return {key_of(one): one for one in found if "helm.sh/hook" not in one["metadata"].get("annotations", {})}


def key_of(found: Json) -> Key:
    return found["kind"], found["metadata"]["name"]


@cache
def kustomized(folder: str) -> str:
    ran = subprocess.run([find_kubectl(), "kustomize", folder], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def made_by(folder: Path | str) -> list[Json]:
    made = list(yaml.load_all(kustomized(str(folder)), yaml.CSafeLoader))
    for one in made:
        # Cluster-scoped, which kustomize does not know.
        if one["kind"].startswith("ValidatingAdmissionPolicy"):
            one["metadata"].pop("namespace", None)
    return made


def overlaid(tmp_path: Path, *, single: bool, parts: list[Any], config: Json) -> list[Json]:
    """The objects of an overlay with these components and this configuration."""
    paths = [one.of_one_namespace() if single else one.path for one in parts]
    (tmp_path / "frameworkcontroller.yaml").write_text(yaml.safe_dump(config))
    namespace = "frameworks" if single else "frameworkcontroller"
    overlay = {
        "namespace": namespace,
        "resources": [os.path.relpath(MANIFESTS / ("overlays/single-namespace" if single else "base"), tmp_path)],
        "components": [os.path.relpath(MANIFESTS / path, tmp_path) for path in paths],
        "configMapGenerator": [
            {"name": "frameworkcontroller-config", "behavior": "replace", "files": ["frameworkcontroller.yaml"]}
        ],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return made_by(tmp_path)


def of_a_release(made: list[Json]) -> Iterator[Json]:
    """The objects of kustomizations as a release has them."""
    for one in made:
        kind, name = key_of(one)
        if kind == "Namespace":
            continue
        if kind == "CustomResourceDefinition":
            one["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
        if (kind, name) == ("ClusterRole", "frameworkcontroller"):
            # The chart updates the CRD, so the controller must not.
            create, update, *others = one["rules"]
            assert (create["verbs"], update["verbs"]) == (["create"], ["get", "update"])
            one["rules"] = [{**update, "verbs": ["get"]}, *others]
        if kind == "ConfigMap" and name.startswith("frameworkcontroller-config-"):
            one["metadata"]["name"] = "frameworkcontroller-config"
        if (kind, name) == ("StatefulSet", "frameworkcontroller"):
            for volume in one["spec"]["template"]["spec"]["volumes"]:
                if "configMap" in volume:
                    volume["configMap"]["name"] = re.sub("-[a-z0-9]{10}$", "", volume["configMap"]["name"])
        yield one


def assert_equal(found: dict[Key, Json], expected: list[Json]) -> None:
    wanted = {key_of(one): one for one in of_a_release(expected)}
    assert found.keys() == wanted.keys()
    for key, one in found.items():
        if key == ("StatefulSet", "frameworkcontroller"):
            annotations = one["spec"]["template"]["metadata"].pop("annotations")
            assert annotations.keys() == {"checksum/config"}
        if key == ("ConfigMap", "frameworkcontroller-config"):
            for of in (one, wanted[key]):
                of["data"] = {name: yaml.safe_load(text) for name, text in of["data"].items()}
        for of in (one, wanted[key]):
            # Sets.
            if "rules" in of:
                of["rules"].sort(key=str)
        assert one == wanted[key], key


def test_every_overlay_is_compared() -> None:
    built = {
        file.parent.relative_to(MANIFESTS).as_posix()
        for file in MANIFESTS.rglob("kustomization.yaml")
        if yaml.safe_load(file.read_text())["kind"] == "Kustomization"
    }
    assert built - NO_OVERLAYS == OVERLAYS.keys()
    components = {
        file.parent.relative_to(MANIFESTS).as_posix() for file in MANIFESTS.rglob("kustomization.yaml")
    } - built
    paths = {path for one in chart.PARTS if one.path for path in (one.path, one.of_one_namespace())}
    assert components == paths


@pytest.mark.parametrize("folder", OVERLAYS)
def test_the_chart_renders_an_overlay(folder: str) -> None:
    namespace = "frameworks" if "namespace" in folder else "frameworkcontroller"
    assert_equal(rendered(namespace, *OVERLAYS[folder]), made_by(MANIFESTS / folder))


@pytest.mark.parametrize("single", [False, True], ids=["cluster", "namespace"])
@pytest.mark.parametrize("on", SETS, ids=lambda on: "+".join(sorted(on)))
def test_a_switch_adds_its_component(tmp_path: Path, on: set[str], single: bool) -> None:
    """With switches that others need, and in a controller of one namespace without cluster-scoped objects."""
    names = {above for name in on for above in chart.Part("", name).switches}
    names |= {above for one in chart.PARTS if one.switch in on for above in one.switches}
    names |= {one.switch for one in chart.PARTS if one.default}
    parts = [one for one in chart.PARTS if one.path and one.switches <= names]
    assert {one.switch for one in parts} >= {name for name in on if name != "history.archive"}
    values = [f"{name}.enabled=true" for name in sorted(names - {"critical"})]
    values += ["controller.priorityClassName=system-cluster-critical"] * ("critical" in names)
    config = yaml.safe_load((MANIFESTS / "base/frameworkcontroller.yaml").read_text())
    full = yaml.safe_load((MANIFESTS / "overlays/full/frameworkcontroller.yaml").read_text())
    config |= {key: full[key] for one in parts for key in one.config}
    namespace = "frameworkcontroller"
    if single:
        namespace = "frameworks"
        config["namespace"] = namespace
        values.append("namespaceScoped.enabled=true")
        if "history" in config:
            config["history"] |= {"url": "https://archive.frameworks.svc/v1/records", "cluster": "c"}
            values.append("config.history.cluster=c")
    made = overlaid(tmp_path, single=single, parts=parts, config=config)
    granted = [one for one in made if single and "namespace" not in one["metadata"]]
    assert_equal(rendered(namespace, *values), [one for one in made if one not in granted])
    if single:
        for part in parts:
            if (path := part.granted()) is not None:
                granted += yaml.safe_load_all(path.read_text())
        granted += yaml.safe_load_all((MANIFESTS / "overlays/single-namespace/nodes.yaml").read_text())
        cluster = made_by(MANIFESTS / "overlays/single-namespace/cluster")
        labels = made_by(MANIFESTS / "base")
        granted += [one for one in labels if key_of(one) in {key_of(other) for other in cluster}]
        found = rendered(namespace, *values, "namespaceScoped.clusterResources=true")
        for key in set(found) - {key_of(one) for one in made}:
            assert "namespace" not in found[key]["metadata"], key
        assert_equal(
            {key: one for key, one in found.items() if "namespace" not in one["metadata"]},
            granted,
        )


def test_the_chart_is_current() -> None:
    made = chart.files()
    assert chart.generated().keys() == made.keys(), "run `make docs`"
    for name, text in made.items():
        assert (CHART / name).read_text() == text, "run `make docs`"


@pytest.mark.parametrize("switch", ["network", "volumeClaims"])
@pytest.mark.parametrize("scope", [(), ("namespaceScoped.enabled=true",)])
def test_permissions_that_no_framework_needs_can_be_left_out(switch: str, scope: tuple[str, ...]) -> None:
    resource = {"network": "services", "volumeClaims": "persistentvolumeclaims"}[switch]
    with_all, fewer = (rendered("frameworks", f"{switch}.enabled={value}", *scope) for value in ("true", "false"))
    assert with_all.keys() == fewer.keys()
    key = ("Role", "frameworkcontroller-frameworks") if scope else ("ClusterRole", "frameworkcontroller")
    assert [rule for rule in with_all[key]["rules"] if rule["resources"] != [resource]] == fewer[key]["rules"]
    assert with_all[key] != fewer[key]


def test_either_the_chart_or_the_controller_updates_the_crds() -> None:
    ours, its = (rendered("frameworkcontroller", f"crds.install={value}") for value in ("true", "false"))
    assert {kind for kind, _ in ours.keys() - its.keys()} == {"CustomResourceDefinition"}
    verbs = [
        {
            verb
            for rule in one["ClusterRole", "frameworkcontroller"]["rules"]
            if "customresourcedefinitions" in rule["resources"]
            for verb in rule["verbs"]
        }
        for one in (ours, its)
    ]
    assert verbs == [{"get"}, {"get", "create", "update"}]
    crds = [path for path in (ROOT / "crd").glob("*.yaml") if path.name != "kustomization.yaml"]
    assert len(ours) - len(its) == len(crds)


def test_nothing_names_another_namespace() -> None:
    on = [f"{name}.enabled=true" for name in sorted(SWITCHES)]
    for scope in ((), ("namespaceScoped.enabled=true", "namespaceScoped.clusterResources=true")):
        found = rendered("elsewhere", *on, *scope, "config.history.cluster=c")
        text = yaml.safe_dump(list(found.values()))
        assert set(re.findall(r"namespace: ([a-z-]+)$", text, re.MULTILINE)) == {"elsewhere", "kueue-system"}
        assert set(re.findall(r"(?:archive|dashboard)\.([a-z-]+)\b", text)) <= {"elsewhere", "svc", "yaml", "db"}
        # The names of cluster-scoped objects for one namespace.
        assert not [name for _, name in found if scope and "-frameworks-" in name]


def test_settings_reach_the_pods() -> None:
    digest = f"sha256:{'a' * 64}"
    on = [f"{name}.enabled=true" for name in sorted(SWITCHES)]
    scheduling = ("nodeSelector.a=b", "tolerations[0].key=t", "affinity.nodeAffinity.x=y", "priorityClassName=p")
    values = [
        f"{section}.{one}"
        for section in ("controller", "history.archive", "dashboard")
        for one in (*scheduling, f"resources.limits.cpu={len(section)}")
    ]
    image = ("image.repository=r/i", f"image.digest={digest}", "image.pullPolicy=Always", "image.pullSecrets[0].name=s")
    found = rendered("n", *on, *values, *image, "controller.replicas=3")
    pods = {key: one["spec"] for key, one in found.items() if key in chart.WORKLOADS}
    assert pods.keys() == chart.WORKLOADS.keys()
    assert pods["StatefulSet", "frameworkcontroller"]["replicas"] == 3
    for key, spec in pods.items():
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        assert (container["image"], container["imagePullPolicy"]) == (f"r/i@{digest}", "Always")
        assert container["resources"]["limits"]["cpu"] == len(chart.WORKLOADS[key])
        wanted = {
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "t"}],
            "affinity": {"nodeAffinity": {"x": "y"}},
            "priorityClassName": "p",
            "imagePullSecrets": [{"name": "s"}],
        }
        assert {name: pod[name] for name in wanted} == wanted
    (tag,) = {
        one["spec"]["template"]["spec"]["containers"][0]["image"]
        for key, one in rendered("n", "image.tag=1.2").items()
        if key in chart.WORKLOADS
    }
    assert tag == "frameworkcontroller:1.2"


def test_network_policies_can_be_opened() -> None:
    on = [f"{name}.enabled=true" for name in sorted(SWITCHES)]
    more = ("dashboard.ingress[0].ports[0].port=1", "history.archive.ingress[0].ports[0].port=2")
    found = rendered("n", *on, *more, "networkPolicies.egress[0].ports[0].port=3", "monitoring.namespace=m")
    policies = {name: one["spec"] for (kind, name), one in found.items() if kind == "NetworkPolicy"}
    assert len(policies) == 3
    assert all(policy["egress"][-1] == {"ports": [{"port": 3}]} for policy in policies.values())
    assert policies["frameworkcontroller-dashboard"]["ingress"] == [{"ports": [{"port": 1}]}]
    assert policies["frameworkcontroller-archive"]["ingress"][-1] == {"ports": [{"port": 2}]}
    namespaces = re.findall(r"kubernetes.io/metadata.name: (\w+)", yaml.safe_dump(policies))
    assert namespaces == ["m", "m"]


def test_the_configuration_is_merged(tmp_path: Path) -> None:
    values = {
        "config": {
            "kubeClientQps": 12.5,
            "frameworkCompletedRetainSec": 2**53,
            "workerNumber": 1000000,
            "leaderElection": {"leaseDurationSec": 30},
            "webAddress": "127.0.0.2:10280",
            "podFailureSpec": [{"code": 7, "podPatterns": [{"containers": [{"codeRange": {"min": 7, "max": 7}}]}]}],
        }
    }
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    ran = run_helm("template", str(CHART), f"--values={tmp_path}/values.yaml", "--show-only=templates/configmap.yaml")
    assert ran.returncode == 0, ran.stderr
    (tmp_path / "c.yaml").write_text(yaml.safe_load(ran.stdout)["data"]["frameworkcontroller.yaml"])
    config = load_config(tmp_path / "c.yaml", required=True)
    assert (config.kube_client_qps, config.worker_number, config.web_address) == (12.5, 1000000, "127.0.0.2:10280")
    assert config.framework_completed_retain_sec == 2**53
    assert (config.leader_election.lease_duration_sec, config.leader_election.enabled) == (30, True)
    assert config.leader_election.lock_file == "/run/frameworkcontroller/lock"
    assert [one.code for one in config.pod_failure_spec] == [7]


@pytest.mark.parametrize(
    "file", ["frameworkcontroller/config/default-config.yaml", "manifests/overlays/full/frameworkcontroller.yaml"]
)
def test_valid_configurations_are_accepted(tmp_path: Path, file: str) -> None:
    config = yaml.safe_load((ROOT / file).read_text())
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"config": config}))
    ran = run_helm("template", str(CHART), f"--values={tmp_path}/values.yaml", "--show-only=templates/configmap.yaml")
    assert ran.returncode == 0, ran.stderr
    shown = yaml.safe_load(yaml.safe_load(ran.stdout)["data"]["frameworkcontroller.yaml"])
    assert config.items() <= shown.items()


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (("gang.enabld=true",), "'/gang': additional properties 'enabld' not allowed"),
        (("unknown=1",), "additional properties 'unknown' not allowed"),
        (("gang.enabled=yes",), "'/gang/enabled': got string, want boolean"),
        (("controller.replicas=many",), "'/controller/replicas': got string, want integer"),
        (("controller.replicas=-1",), "'/controller/replicas': minimum: got -1, want 0"),
        (("image.digest=abc",), "'/image/digest': 'abc' does not match pattern"),
        (("image.pullPolicy=Sometimes",), "'/image/pullPolicy': value must be one of"),
        (("image.pullSecrets[0]=s",), "'/image/pullSecrets/0': got string, want object"),
        (("config.workerNumbr=1",), "'/config': additional properties 'workerNumbr' not allowed"),
        (("config.workerNumber=0",), "'/config/workerNumber': exclusiveMinimum"),
        (("config.leaderElection.enabled=1",), "'/config/leaderElection/enabled': got number, want boolean"),
        (("config.history.sink=htp",), "'/config/history/sink': value must be one of 'none', 'file', 'http'"),
        (("dashboard.enabled=true",), "dashboard.enabled needs history.enabled and history.archive.enabled"),
        (
            ("history.enabled=true", "history.archive.enabled=false"),
            "history.enabled without history.archive.enabled needs config.history.url",
        ),
        (
            ("history.enabled=true", "namespaceScoped.enabled=true"),
            "history.enabled with namespaceScoped.enabled needs config.history.cluster",
        ),
    ],
)
def test_wrong_values_are_refused(values: tuple[str, ...], complaint: str) -> None:
    ran = run_helm("template", str(CHART), *(f"--set={one}" for one in values))
    assert ran.returncode != 0
    assert complaint in ran.stderr


def test_helm_finds_no_fault(tmp_path: Path) -> None:
    assert (ran := run_helm("lint", "--strict", str(CHART))).returncode == 0, ran.stdout
    everything = tmp_path / "values.yaml"
    everything.write_text(yaml.safe_dump({"config": {"history": {"cluster": "c"}}}))
    on = [f"--set={name}.enabled=true" for name in sorted(SWITCHES)]
    ran = run_helm("lint", "--strict", str(CHART), f"--values={everything}", *on, "--set=namespaceScoped.enabled=true")
    assert ran.returncode == 0, ran.stdout
    ran = run_helm("package", str(CHART), f"--destination={tmp_path}")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / f"frameworkcontroller-{__version__}.tgz").exists()
