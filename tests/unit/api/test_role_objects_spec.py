"""Fields of the spec for Services and disruption budgets of roles: valid values, and errors with field and value."""

from typing import Any

import pytest

from frameworkcontroller.api.objects import budget_record, service_content
from frameworkcontroller.api.servingspec import MAX_SERVICE_PORTS
from frameworkcontroller.api.spec import MAX_BUDGETS, MAX_SERVICES, SpecError, parse_spec

Json = dict[str, Any]

PORT = {"port": 80}


def spec(*ports: Json, role: str = "a", **network: Any) -> Json:
    services = [{"taskRole": role, "ports": list(ports or (PORT,))}]
    return {"network": {"services": services, **network}, "taskRoles": [{"name": "a"}]}


def problem(given: Json, framework: str = "f") -> str:
    with pytest.raises(SpecError) as error:
        parse_spec(given, framework=framework)
    return str(error.value)


@pytest.mark.parametrize(
    "port",
    [
        {"port": 1},
        {"port": 65535, "targetPort": 65535},
        {"port": 80, "targetPort": "http"},
        {"port": 80, "targetPort": "a-1", "protocol": "UDP", "name": "x" * 63, "appProtocol": "kubernetes.io/h2c"},
        {"port": 80, "targetPort": None, "name": None, "appProtocol": None, "protocol": None},
    ],
)
def test_ports(port: Json) -> None:
    (found,) = parse_spec(spec(port), framework="f").services
    assert found.ports[0].port == port["port"]


@pytest.mark.parametrize(
    ("port", "field", "text"),
    [
        ({"port": 0}, "port", "0: must be at least 1"),
        ({"port": 65536}, "port", "65536: must be at most 65535"),
        ({"port": "80"}, "port", "'80': must be a whole number"),
        ({}, "port", "is required"),
        ({"port": 80, "targetPort": 0}, "targetPort", "0: must be the number of a port"),
        ({"port": 80, "targetPort": "80"}, "targetPort", "'80': must be the number of a port"),
        ({"port": 80, "targetPort": "a--b"}, "targetPort", "'a--b': must be the number of a port"),
        ({"port": 80, "targetPort": "x" * 16}, "targetPort", "must be the number of a port"),
        ({"port": 80, "targetPort": True}, "targetPort", "true: must be the number of a port"),
        ({"port": 80, "targetPort": [1]}, "targetPort", "a list: must be the number of a port"),
        ({"port": 80, "name": "Http"}, "name", "'Http': must be the name of a port"),
        ({"port": 80, "name": "x" * 64}, "name", "must be the name of a port"),
        ({"port": 80, "protocol": "HTTP"}, "protocol", "'HTTP': must be TCP, UDP or SCTP"),
        ({"port": 80, "appProtocol": "-"}, "appProtocol", "'-': must be the name of a protocol"),
    ],
)
def test_wrong_ports(port: Json, field: str, text: str) -> None:
    said = problem(spec(port))
    assert said.startswith(f"spec.network.services[0].ports[0].{field}: ")
    assert text in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            spec({"port": 80, "name": "a"}, {"port": 80, "name": "b"}),
            "spec.network.services[0].ports[1].port: 80: is already in ports[0]",
        ),
        (
            spec({"port": 80, "name": "a"}, {"port": 81, "name": "a"}),
            "spec.network.services[0].ports[1].name: 'a': is already the name of ports[0]",
        ),
        (
            spec({"port": 80}, {"port": 81, "name": "a"}),
            "spec.network.services[0].ports[0].name: must be set, as there are several ports",
        ),
        (spec(role="b"), "spec.network.services[0].taskRole: 'b': is not the name of a TaskRole"),
        (
            spec(services=[{"taskRole": "a", "ports": [PORT]}] * 2),
            "spec.network.services[1].taskRole: 'a': is already in services[0]",
        ),
        (
            spec(services=[{"taskRole": "a", "ports": []}]),
            "spec.network.services[0].ports: a list: must have at least 1",
        ),
        (spec(services=[{"taskRole": "a"}]), "spec.network.services[0].ports: is required"),
        (
            spec(subdomain="f-a"),
            "spec.network.services[0].taskRole: 'a': the name of its Service, f-a, is also spec.network.subdomain",
        ),
    ],
)
def test_services_that_cannot_be(given: Json, said: str) -> None:
    assert problem(given).startswith(said)


def test_one_port_of_two_protocols() -> None:
    ports = ({"port": 53, "name": "udp", "protocol": "UDP"}, {"port": 53, "name": "tcp"})
    (found,) = parse_spec(spec(*ports), framework="f").services
    assert [one.protocol for one in found.ports] == ["UDP", "TCP"]


@pytest.mark.parametrize(
    ("framework", "text"),
    [("f" * 62, "has 64 characters, where 63 are allowed"), ("1f", "starts with a digit")],
)
def test_names_that_no_service_may_have(framework: str, text: str) -> None:
    assert text in problem(spec(enableDNSHostnames=False), framework)


def test_the_number_of_everything_is_bounded() -> None:
    ports = [{"port": number, "name": f"p{number}"} for number in range(1, MAX_SERVICE_PORTS + 2)]
    parse_spec(spec(*ports[:-1]), framework="f")
    assert f"must have at most {MAX_SERVICE_PORTS} items" in problem(spec(*ports))
    roles = [{"name": f"r{number}", "disruptionBudget": {"maxUnavailable": 0}} for number in range(MAX_BUDGETS + 1)]
    services = [{"taskRole": one["name"], "ports": [PORT]} for one in roles]
    assert MAX_SERVICES == MAX_BUDGETS
    parse_spec({"taskRoles": roles[:-1], "network": {"services": services[:-1]}}, framework="f")
    plain = [{"name": one["name"]} for one in roles]
    assert "must have at most 100 items" in problem({"taskRoles": plain, "network": {"services": services}})
    assert problem({"taskRoles": roles}) == "spec.taskRoles: 101 of them have a disruptionBudget, where 100 are allowed"


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        ({"maxUnavailable": -1}, "maxUnavailable: -1: must be at least 0"),
        ({"maxUnavailable": "10%"}, "maxUnavailable: '10%': must be a whole number"),
        ({"maxUnavailable": 2**31}, "maxUnavailable: 2147483648: must be at most 2147483647"),
        ({}, "maxUnavailable: is required"),
        (1, "disruptionBudget: 1: must be a mapping"),
    ],
)
def test_wrong_budgets(budget: Any, text: str) -> None:
    said = problem({"taskRoles": [{"name": "a", "disruptionBudget": budget}]})
    assert said.startswith("spec.taskRoles[0].disruptionBudget")
    assert text in said


def test_ports_that_mean_the_same_have_the_same_content() -> None:
    filled = {"port": 80, "targetPort": 80, "protocol": "TCP", "nodePort": 30000}
    assert service_content({"ports": [{"port": 80}]}) == service_content({"ports": [filled]})
    others = ({"port": 81}, {"targetPort": "http"}, {"protocol": "UDP"}, {"name": "a"}, {"appProtocol": "http"})
    for other in others:
        assert service_content({"ports": [{"port": 80, **other}]}) != service_content({"ports": [filled]})
    assert service_content({}) == ""


def test_a_record_of_a_budget_has_its_minimum() -> None:
    metadata = {"name": "f-a", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    assert budget_record({"metadata": metadata, "spec": {"minAvailable": 2}}).content == "2"
    assert budget_record({"metadata": metadata, "spec": {"minAvailable": "50%"}}).content == "50%"
    assert budget_record({"metadata": metadata}).content == "None"
