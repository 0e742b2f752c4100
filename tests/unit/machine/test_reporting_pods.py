"""Fields of Pods by ``spec.progress`` and ``spec.checkpointGraceSeconds``."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from frameworkcontroller.api.objects import configmap_record
from frameworkcontroller.machine.parts.progress.reportingpods import ReportingPods
from tests.support.bench import Bench, Body, limits, role
from tests.support.progressbench import CA, CONFIGMAP, ProgressBench, reporting_limits

URL = "https://reports.ns.svc:9000/apis/progress/v1/namespaces/ns/frameworks/f/attempts/"
PATH = "/var/run/secrets/frameworkcontroller"
VOLUME = "frameworkcontroller-progress"
MOUNT = {"name": VOLUME, "mountPath": PATH, "readOnly": True}
VARIABLES = {
    "KUBEFLOW_TRAINER_SERVER_URL": URL + "0",
    "KUBEFLOW_TRAINER_SERVER_CA_CERT": f"{PATH}/ca.crt",
    "KUBEFLOW_TRAINER_SERVER_TOKEN": f"{PATH}/token",
}
TOKEN = {
    "serviceAccountToken": {"audience": "frameworkcontroller-progress", "expirationSeconds": 3600, "path": "token"}
}


def files(*keys: str) -> Body:
    """The source of the volume with these files of the ConfigMap."""
    items = [{"key": key, "path": key} for key in keys]
    return {"configMap": {"name": CONFIGMAP, "items": items, "optional": True}}


def pod(bench: Bench, name: str = "f-a-0") -> Body:
    """The Pod, which is created."""
    bench.pod(name)
    return bench.bodies[name]


def templated(spec: Any, **role_fields: Any) -> Body:
    """The Pod of a role with that spec in its template."""
    return pod(ProgressBench(role(pod={"spec": spec}, **role_fields)))


def variables(container: Body) -> dict[str, Any]:
    """The variables of a container by which it reports."""
    return {one["name"]: one.get("value") for one in container["env"] if one["name"].startswith("KUBEFLOW_")}


def test_the_pod_has_address_token_and_ca() -> None:
    spec = pod(ProgressBench())["spec"]
    assert spec["volumes"] == [{"name": VOLUME, "projected": {"sources": [TOKEN, files("ca.crt")]}}]
    (container,) = spec["containers"]
    assert container["volumeMounts"] == [MOUNT]
    assert variables(container) == VARIABLES


def test_the_configmap_has_ca_and_interval() -> None:
    bench = ProgressBench(progress={"intervalSeconds": 5})
    bench.attempt()
    assert bench.bodies[CONFIGMAP]["data"] == {"ca.crt": CA, "interval": "5"}


def test_the_address_is_of_the_attempt() -> None:
    bench = ProgressBench(role(number=2, failed=1), retryPolicy={"maxRetryCount": 1})
    bench.run_all()
    bench.end("f-a-0", 1)
    bench.all_pods()
    assert bench.status.attempt.id == 1
    for index in (0, 1):
        container = bench.bodies[f"f-a-{index}"]["spec"]["containers"][0]
        assert variables(container)["KUBEFLOW_TRAINER_SERVER_URL"] == URL + "1"


@pytest.mark.parametrize(
    ("limit", "spec"),
    [(limits(), {"progress": {}}), (reporting_limits(), {}), (limits(), {})],
    ids=["server", "spec", "both"],
)
def test_nothing_is_added_without(limit: Any, spec: Any) -> None:
    bench = Bench(role(), limit=limit, **spec)
    plain = Bench(role())
    assert pod(bench) == pod(plain)
    assert bench.bodies[CONFIGMAP] == plain.bodies[CONFIGMAP]


def test_only_the_coordinators_role_reports() -> None:
    bench = ProgressBench(role("a"), role("b", 2), coordinator={"taskRole": "b"})
    bench.all_pods()
    reports = {
        name: bool(variables(body["spec"]["containers"][0]))
        for name, body in bench.bodies.items()
        if body["kind"] == "Pod"
    }
    assert reports == {"f-a-0": False, "f-b-0": True, "f-b-1": True}


def test_without_a_coordinator_all_roles_report() -> None:
    bench = ProgressBench(role("a"), role("b"))
    bench.all_pods()
    assert all(variables(bench.bodies[name]["spec"]["containers"][0]) for name in ("f-a-0", "f-b-0"))


def test_sidecars_report_and_init_containers_do_not() -> None:
    sidecar = {"name": "s", "image": "i", "restartPolicy": "Always"}
    spec = templated(
        {"initContainers": [{"name": "i", "image": "i"}, sidecar], "containers": [{"name": "m"}, {"name": "n"}]}
    )["spec"]
    init, beside = spec["initContainers"]
    assert variables(init) == {}
    assert "volumeMounts" not in init
    for container in (beside, *spec["containers"]):
        assert variables(container) == VARIABLES
        assert container["volumeMounts"] == [MOUNT]


# --- the user's template wins -------------------------------------------------------------------------------------


def test_variables_mounts_and_volumes_of_the_template_stay() -> None:
    env = [{"name": "A", "value": "$(KUBEFLOW_TRAINER_SERVER_URL)"}]
    mounts, volumes = [{"name": "v", "mountPath": "/v"}], [{"name": "v", "emptyDir": {}}]
    spec = templated({"containers": [{"name": "m", "env": env, "volumeMounts": mounts}], "volumes": volumes})["spec"]
    (container,) = spec["containers"]
    # Ours come first, so that its own can quote them.
    assert container["env"][-1:] == env
    assert container["volumeMounts"] == [MOUNT, *mounts]
    assert spec["volumes"][:1] == volumes


@pytest.mark.parametrize("key", ["serviceAccountName", "serviceAccount"])
def test_the_service_account_of_the_template_stays(key: str) -> None:
    """A token needs one: API servers without the admission plugin ServiceAccount set none."""
    assert templated({"containers": [{"name": "m"}]})["spec"]["serviceAccountName"] == "default"
    spec = templated({"containers": [{"name": "m"}], key: "mine"})["spec"]
    assert {name: spec.get(name) for name in ("serviceAccountName", "serviceAccount") if name in spec} == {key: "mine"}


def test_an_own_token_or_ca_stays() -> None:
    own = [{"name": "KUBEFLOW_TRAINER_SERVER_TOKEN", "value": "/mine"}]
    (container,) = templated({"containers": [{"name": "m", "env": own}]})["spec"]["containers"]
    assert variables(container) == {**VARIABLES, "KUBEFLOW_TRAINER_SERVER_TOKEN": "/mine"}
    assert len([one for one in container["env"] if one["name"] == "KUBEFLOW_TRAINER_SERVER_TOKEN"]) == 1


def test_an_own_address_gets_neither_our_token_nor_our_ca() -> None:
    own = [{"name": "KUBEFLOW_TRAINER_SERVER_URL", "value": "https://mine"}]
    (container,) = templated({"containers": [{"name": "m", "env": own}]})["spec"]["containers"]
    assert variables(container) == {"KUBEFLOW_TRAINER_SERVER_URL": "https://mine"}


@pytest.mark.parametrize(
    "taken",
    [
        {"volumes": [{"name": VOLUME, "emptyDir": {}}]},
        {"containers": [{"name": "m", "volumeMounts": [{"name": "v", "mountPath": PATH}]}]},
        {"containers": [{"name": "m"}, {"name": "n", "volumeMounts": [{"name": "v", "mountPath": PATH + "/"}]}]},
    ],
    ids=["volume", "path", "path of another container"],
)
def test_a_taken_name_or_path_is_avoided(taken: Any) -> None:
    spec = templated({"containers": [{"name": "m"}], **taken})["spec"]
    assert spec["volumes"][-1]["name"] == VOLUME + "-2"
    container = spec["containers"][0]
    assert container["volumeMounts"][0] == {"name": VOLUME + "-2", "mountPath": PATH + "-2", "readOnly": True}
    assert variables(container)["KUBEFLOW_TRAINER_SERVER_TOKEN"] == PATH + "-2/token"


def test_many_taken_names_take_linear_time() -> None:
    """The API server itself refuses names that occur twice."""
    volumes = [{"name": VOLUME}, *({"name": f"{VOLUME}-{number}"} for number in range(2, 20_000))]
    spec: Body = {"containers": [{"name": "m"}], "volumes": volumes}
    ReportingPods(CONFIGMAP, URL, "a").apply({}, spec, "p")
    assert spec["volumes"][-1]["name"] == f"{VOLUME}-20000"


@pytest.mark.parametrize(
    "odd",
    [
        {"volumes": 1},
        {"volumes": [1, {"name": []}, {}]},
        {"containers": 1},
        {"containers": [1, {"env": 1, "volumeMounts": {}}]},
        {"containers": [{"env": [1, {"name": {}}], "volumeMounts": [2, {"mountPath": 3}]}]},
        {"initContainers": {"restartPolicy": "Always"}},
    ],
)
def test_a_wrong_type_stays_for_the_api_server_to_refuse(odd: Body) -> None:
    spec = orjson.loads(orjson.dumps(odd))
    ReportingPods(CONFIGMAP, URL, "a").apply({}, spec, "p")
    for key, value in odd.items():
        if isinstance(value, list):
            assert len(spec[key]) >= len(value)
        else:
            assert spec[key] == value


# --- the ConfigMap ------------------------------------------------------------------------------------------------


def test_a_configmap_without_the_ca_serves_no_reports() -> None:
    """Of an attempt that began before spec.progress was there: its Pods would report to a server they do not know."""
    bench = Bench(role(number=2), limit=reporting_limits())
    bench.pod("f-a-0")
    bench.edit(progress={})
    pods = [pod(bench, "f-a-1")]
    assert variables(pods[0]["spec"]["containers"][0]) == {}
    assert "volumes" not in pods[0]["spec"]


def test_the_record_of_a_configmap_knows_whether_it_has_the_ca() -> None:
    bench = ProgressBench()
    bench.attempt()
    assert configmap_record(bench.bodies[CONFIGMAP]).has_ca
    del bench.bodies[CONFIGMAP]["data"]["ca.crt"]
    assert not configmap_record(bench.bodies[CONFIGMAP]).has_ca


# --- the notice ---------------------------------------------------------------------------------------------------


def test_the_notice_is_in_the_same_volume() -> None:
    bench = ProgressBench(checkpointGraceSeconds=60)
    assert pod(bench)["spec"]["volumes"] == [
        {"name": VOLUME, "projected": {"sources": [TOKEN, files("ca.crt", "notice")]}}
    ]


def test_every_role_sees_the_notice() -> None:
    bench = ProgressBench(role("a"), role("b"), coordinator={"taskRole": "b"}, checkpointGraceSeconds=60)
    spec = pod(bench)["spec"]
    assert spec["volumes"] == [{"name": VOLUME, "projected": {"sources": [files("notice")]}}]
    assert spec["containers"][0]["volumeMounts"] == [MOUNT]
    assert variables(spec["containers"][0]) == {}


def test_a_notice_needs_no_reports() -> None:
    spec = pod(Bench(role(), checkpointGraceSeconds=60))["spec"]
    assert spec["volumes"] == [{"name": VOLUME, "projected": {"sources": [files("notice")]}}]


def test_a_variable_names_the_file_with_the_notice() -> None:
    found = {"name": "FC_NOTICE_FILE", "value": f"{PATH}/notice"}
    for progress in (None, dict[str, int]()):
        (container,) = pod(ProgressBench(role(), checkpointGraceSeconds=5, progress=progress))["spec"]["containers"]
        assert found in container["env"]
    own = {"name": "KUBEFLOW_TRAINER_SERVER_URL", "value": "https://mine"}
    template = {"containers": [{"name": "main", "image": "none", "env": [own]}]}
    bench = ProgressBench(role(pod={"spec": template}), checkpointGraceSeconds=5)
    (container,) = pod(bench)["spec"]["containers"]
    assert found in container["env"]
    assert variables(container) == {"KUBEFLOW_TRAINER_SERVER_URL": "https://mine"}
