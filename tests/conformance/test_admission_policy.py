"""The ValidatingAdmissionPolicy of the component admission refuses mistakes in Pod templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import orjson
import pytest
import yaml

from frameworkcontroller.kube.errors import Invalid
from frameworkcontroller.kube.resources import Resource
from tests.conformance.test_framework_crd import FRAMEWORKS, Frameworks
from tests.support.clusters import Cluster
from tests.support.eventually import eventually

_MANIFEST: Final = Path(__file__).parents[2] / "manifests/components/admission/policy.yaml"
_GROUP: Final = "admissionregistration.k8s.io"
_RESOURCES: Final = {
    kind: Resource(_GROUP, "v1", plural, kind, namespaced=False)
    for kind, plural in (
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    )
}

GOOD: Final = {"name": "main", "image": "none", "command": ["x"], "env": [{"name": "A", "value": "5"}]}
BAD: Final[dict[str, tuple[Any, str]]] = {
    "no image": ({"name": "main"}, "a container of TaskRole b has no image"),
    "an empty image": (GOOD | {"image": ""}, "a container of TaskRole b has no image"),
    "a number": (
        GOOD | {"env": [{"name": "A", "value": 5}]},
        "an env value of TaskRole b is not text: put it in quotes",
    ),
    "a text": (GOOD | {"command": "python x"}, "command or args of TaskRole b is a text, and must be a list"),
}


def spec(container: Any) -> Any:
    roles = [("a", GOOD), ("b", container)]
    pods = [{"name": name, "task": {"pod": {"spec": {"containers": [one]}}}} for name, one in roles]
    return {"executionType": "Create", "taskRoles": pods}


@pytest.mark.newest
async def test_mistakes_in_pod_templates_are_refused(cluster: Cluster) -> None:
    if cluster.name != "1.36":
        pytest.skip("needs ValidatingAdmissionPolicies")
    client = await cluster.client()
    frameworks = Frameworks(client, cluster.namespace)
    before = await frameworks.create("before", spec=spec({"name": "main"}))
    documents = list(yaml.safe_load_all(_MANIFEST.read_text()))
    try:
        for body in documents:
            await client.create(_RESOURCES[body["kind"]], orjson.dumps(body), None)

        async def refuses() -> bool:
            try:
                await frameworks.create("probe", spec=spec({"name": "main"}))
            except Invalid:
                return True
            await client.delete(FRAMEWORKS, "probe", cluster.namespace)
            return False

        await eventually(refuses)
        for number, (container, message) in enumerate(BAD.values()):
            with pytest.raises(Invalid, match=message):
                await frameworks.create(f"f{number}", spec=spec(container))
        await frameworks.create("good", spec=spec(GOOD))
        await frameworks.create(
            "odd", spec={"executionType": "Create", "taskRoles": [{"name": "a", "task": {"pod": {}}}]}
        )
        # The controller must be able to end older Frameworks.
        await frameworks.patch({"metadata": {"annotations": {"a": "b"}}}, "before")
        assert (await frameworks.put_status({"state": "Completed"}, "before"))["state"] == "Completed"
        assert before["spec"]["taskRoles"][1]["task"]["pod"]
    finally:
        for body in reversed(documents):
            await client.delete(_RESOURCES[body["kind"]], body["metadata"]["name"], None)
