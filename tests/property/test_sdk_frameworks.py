"""Frameworks that the SDK accepts: the API server takes them, and their YAML has the same meaning."""

from __future__ import annotations

from typing import Any, Final

import orjson
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import frameworkcontroller
from frameworkcontroller import (
    Claim,
    Code,
    Completion,
    Framework,
    InvalidSpec,
    Progress,
    Resources,
    Retry,
    Role,
    command,
    function,
    jax,
    mpi,
    ray,
    spark,
    tensorflow,
    torchrun,
)
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.resources import CRDS
from frameworkcontroller.local.apiserver.restserver import ApiServer
from frameworkcontroller.sdk.podtemplates import merged
from tests.support.framework_crd import crd_json
from tests.support.virtual_clock import run, wall

UNTYPED: Any = frameworkcontroller

TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["1e3", "0x1f", "yes", "~", "1:30", "2026-01-01", "{{FC_TASK_INDEX}}", "$(A)", " a\n\tb: [c]"]
)
GOOD_NAMES: Final = st.sampled_from(["a", "b", "c1", "main", "worker"])
NAMES: Final = GOOD_NAMES | st.sampled_from(["Bad_name", ""])
COUNTS: Final = st.integers(0, 3) | st.sampled_from([-3, -2, -1, 10001, 2**31, 2**63])
NUMBERS: Final = st.none() | COUNTS
VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["name", "spec", "containers", "env", "mountPath"]) | TEXT, inner, max_size=3)
    ),
    max_leaves=8,
)
CONTAINERS: Final = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["main", "side"])}, optional={"image": TEXT, "env": VALUES, "x": VALUES}
    ),
    max_size=2,
)
PODS: Final = st.fixed_dictionaries(
    {},
    optional={"spec": st.fixed_dictionaries({}, optional={"containers": CONTAINERS, "x": VALUES}), "metadata": VALUES},
)
RETRIES: Final = st.builds(
    lambda times, fancy, base, most: UNTYPED.Retry(times, fancy=fancy, base_seconds=base, max_seconds=most),
    st.sampled_from([-2, -1, 0, 5, 2**31 - 1, 2**31]),
    st.booleans(),
    st.none() | st.integers(0, 400),
    st.none() | st.integers(0, 400),
)
RESOURCES: Final = st.builds(
    Resources,
    cpu=st.none() | st.floats(0, 100) | st.sampled_from(["500m", "2"]),
    memory=st.none() | st.sampled_from(["1Gi", "1e9"]),
    gpus=st.integers(0, 8),
)
CODES: Final = st.sampled_from(
    [
        Code("files", {}, {"a.py": b"1"}),
        Code("files", {}, {"p/a.py": b"1"}),
        Code.git("https://host/repo", commit="c" * 40),
        Code.claim("data", "a/b"),
    ]
)
GOOD_RETRIES: Final = st.builds(
    lambda times, fancy, base: Retry(times, fancy=fancy, base_seconds=base),
    st.sampled_from([-2, -1, 0, 5, 2**31 - 1]),
    st.booleans(),
    st.none() | st.integers(0, 360),
)


def claims(names: st.SearchStrategy[str]) -> st.SearchStrategy[list[Claim]]:
    return st.lists(
        st.builds(Claim, name=names, size=st.just("1Gi"), path=TEXT), max_size=2, unique_by=lambda it: it.name
    )


COMMON: Final = {
    "image": st.none() | TEXT,
    "command": st.lists(TEXT, max_size=2),
    "env": st.dictionaries(TEXT, TEXT, max_size=2),
    "resources": RESOURCES,
    "completion": st.builds(Completion, min_failed=st.integers(-1, 3), min_succeeded=st.integers(-1, 3)),
    "pod": PODS,
}
GOOD_ROLES: Final = st.builds(
    Role, name=GOOD_NAMES, tasks=st.integers(0, 3), retry=GOOD_RETRIES, claims=claims(GOOD_NAMES), **COMMON
)
ANY_ROLES: Final = st.builds(
    UNTYPED.Role,
    name=NAMES,
    tasks=COUNTS,
    retry=RETRIES,
    claims=claims(NAMES),
    depends_on=st.dictionaries(NAMES, st.sampled_from(["Ready", "Complete"]), max_size=1),
    extra=st.fixed_dictionaries({}, optional={"taskNumber": NUMBERS, "task": st.none() | st.just({"x": 1})}),
    **COMMON,
)
LABELS: Final = st.dictionaries(st.sampled_from(["team", "a/b"]), st.sampled_from(["x", "1", "true", ""]), max_size=2)


@st.composite
def frameworks(draw: st.DrawFn) -> Framework | None:
    """A Framework, valid or not; None if its fields are refused at once."""
    is_good = draw(st.booleans())
    roles = st.lists(GOOD_ROLES if is_good else ANY_ROLES, max_size=3, unique_by=lambda one: one.name)
    numbers = st.integers(1, 100) if is_good else NUMBERS
    fields = {
        "roles": roles,
        "retry": GOOD_RETRIES if is_good else RETRIES,
        "queue": st.none() | st.sampled_from(["q", "team-a"]),
        "priority": st.none() | st.just("high"),
        "gang": st.booleans(),
        "deadline": numbers,
        "ttl": numbers,
        "network": st.booleans(),
        "coordinator": st.none() | st.sampled_from(["a", "b/0", "worker/1", "worker/x"]),
        "progress": st.none()
        | st.builds(
            Progress,
            interval=st.none() | st.integers(1, 60),
            deadline=st.none() | st.integers(100, 200),
            start_deadline=st.none() | st.integers(100, 200),
        ),
        "code": st.none() | CODES,
        "labels": LABELS,
        "annotations": st.dictionaries(st.sampled_from(["note", "a.b/c"]), TEXT, max_size=2),
        "extra": st.fixed_dictionaries(
            {}, optional={"suspend": st.booleans(), "description": TEXT, "executionType": st.just("Create")}
        ),
    }
    try:
        return Framework(
            name=draw(GOOD_NAMES if is_good else NAMES), **draw(st.fixed_dictionaries({}, optional=fields))
        )
    except InvalidSpec:
        return None


WORDS: Final = st.lists(TEXT, min_size=1, max_size=2)
FEW: Final = st.integers(1, 3)
PRESETS: Final = st.one_of(
    st.builds(command, WORDS, tasks=FEW),
    st.builds(torchrun, TEXT, nodes=FEW, gpus_per_node=st.integers(0, 8), args=WORDS),
    st.builds(jax, WORDS, nodes=FEW),
    st.builds(tensorflow, WORDS, workers=FEW, parameter_servers=st.integers(0, 2), chief=st.booleans()),
    st.builds(mpi, WORDS, workers=FEW, ssh_secret=st.just("keys")),
    st.builds(ray, WORDS, workers=FEW),
    st.builds(spark, WORDS, workers=FEW),
    st.builds(function, st.just("m:f"), args=st.lists(TEXT, max_size=2)),
).map(lambda one: one.replaced(name="p", generate_name=None))


def valid(framework: Framework | None) -> dict[str, Any] | None:
    """Its manifest; None if the SDK refuses it."""
    try:
        return None if framework is None else framework.to_dict()
    except InvalidSpec:
        return None


@settings(max_examples=60)
@given(st.lists(frameworks() | PRESETS, min_size=1, max_size=8))
def test_the_api_server_accepts_each_framework_of_the_sdk(drawn: list[Framework | None]) -> None:
    bodies = [body for one in drawn if (body := valid(one)) is not None]
    run(_create(bodies))


async def _create(bodies: list[dict[str, Any]]) -> None:
    async with (
        ApiServer(wall=wall) as server,
        KubeClient(Connection.to_address(server.url, token=server.authenticator.token)) as client,
    ):
        await client.create(CRDS, crd_json())
        for number, body in enumerate(bodies):
            named = {**body, "metadata": {**body["metadata"], "name": f"f{number}"}}
            created = orjson.loads(await client.create(FRAMEWORKS, orjson.dumps(named), "default"))
            # No field is unknown, so none is pruned.
            assert merged(created["spec"], body["spec"]) == created["spec"]


@settings(max_examples=200)
@given(frameworks() | PRESETS)
def test_yaml_has_the_same_meaning(framework: Framework | None) -> None:
    body = valid(framework)
    if framework is None or body is None:
        return
    text = framework.to_yaml()
    read = Framework.from_yaml(text)
    assert read.to_dict() == body
    assert read.all_objects() == framework.all_objects()
    # As kubectl reads it.
    assert next(iter(yaml.safe_load_all(text))) == body


@settings(max_examples=200)
@given(PODS, CODES)
def test_code_is_added_to_any_pod_template_or_refused(pod: dict[str, Any], code: Code) -> None:
    framework = Framework(name="f", roles=[Role(image="i", command=["c"], pod=pod)], code=code)
    if (body := valid(framework)) is not None:
        (main,) = (
            one for one in body["spec"]["taskRoles"][0]["task"]["pod"]["spec"]["containers"] if one["name"] == "main"
        )
        assert "/mnt/code" in [mount["mountPath"] for mount in main["volumeMounts"]]
        framework.problems()
    else:
        assert framework.problems()


@settings(max_examples=300)
@given(VALUES, VALUES)
def test_merging_twice_is_merging_once(base: Any, change: Any) -> None:
    once = merged(base, change)
    assert merged(once, change) == once
    assert merged(once, {}) == once or not isinstance(once, dict)
