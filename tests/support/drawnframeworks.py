"""Frameworks that hypothesis draws, with Pods that each API server accepts: objects made of them must be accepted, too.

Templates have fields for clusters with quotas and gangs, and fields that no scheduler reads. The metadata
holds placeholders, which are no valid values of labels before they are replaced.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

Json = dict[str, Any]

_PREFIX: Final = "kueue.x-k8s.io/podset-"
PLACEHOLDERS: Final = ("{{FC_FRAMEWORK_NAME}}", "{{FC_TASKROLE_NAME}}", "{{FC_TASK_INDEX}}", "{{FC_POD_NAME}}")
_VALUES: Final = st.sampled_from(["a", "", "b-1", *PLACEHOLDERS, "i{{FC_TASK_INDEX}}"])
_KEYS: Final = st.sampled_from(["app", "example.com/team", "a.b/c_d"])
_NAME: Final = st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)
_CPU: Final = st.sampled_from(["0", "1", "100m", "0.5", "1e2", "2k", 3, 1.5])
_MEMORY: Final = st.sampled_from(["0", "64Mi", "1.5Gi", "1e9", "128974848", "1G", 10**9])
_DEVICES: Final = st.integers(0, 8) | st.integers(0, 8).map(str)
_RANKED: Final = "{{FC_TASK_RANK}}"


def drawn(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """Several values of the strategy: tests on a cluster run in an event loop, where hypothesis does not."""
    values: list[Any] = []

    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: Any) -> None:
        values.append(value)

    collect()
    return values


def _requests() -> st.SearchStrategy[Json]:
    amounts: st.SearchStrategy[Json] = st.fixed_dictionaries(
        {}, optional={"cpu": _CPU, "memory": _MEMORY, "nvidia.com/gpu": _DEVICES, "ephemeral-storage": _MEMORY}
    )
    # A device is never requested without a limit, and both are equal.
    requests = amounts.map(lambda one: {key: value for key, value in one.items() if key != "nvidia.com/gpu"})
    return (
        st.just({})
        | amounts.map(lambda one: {"limits": one})
        | requests.map(lambda one: {"requests": one})
        | amounts.map(lambda one: {"requests": one, "limits": one})
    )


def _containers(prefix: str, least: int) -> st.SearchStrategy[list[Json]]:
    container = st.fixed_dictionaries(
        {"image": st.sampled_from(["busybox:1.37", "registry.example/train@sha256:" + "0" * 64])},
        optional={
            "resources": _requests(),
            "command": st.just(["run", "--index={{FC_TASK_INDEX}}"]),
            "env": st.just([{"name": "SECRET", "value": "{{FC_POD_NAME}}"}]),
            "volumeMounts": st.just([{"name": "scratch", "mountPath": "/scratch"}]),
            "ports": st.just([{"containerPort": 80}]),
            "securityContext": st.just({"runAsNonRoot": True}),
        },
    )
    return st.lists(container, min_size=least, max_size=3).map(
        lambda listed: [{"name": f"{prefix}{number}", **one} for number, one in enumerate(listed)]
    )


_TOLERATION: Final = st.sampled_from(
    [
        {"operator": "Exists"},
        {"key": "gpu", "operator": "Equal", "value": "a100", "effect": "NoSchedule"},
        {"key": "gone", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
    ]
)
_TERM: Final = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"}
_NODES: Final = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
_AFFINITY: Final = st.sampled_from(
    [
        {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_TERM]}},
        {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_NODES]}}},
    ]
)
_SPREAD: Final = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]


def _topology() -> st.SearchStrategy[Json]:
    level = st.sampled_from(["cloud.example/rack", "kubernetes.io/hostname"])
    return (
        st.just({})
        | level.map(lambda one: {f"{_PREFIX}required-topology": one})
        | level.map(lambda one: {f"{_PREFIX}preferred-topology": one, f"{_PREFIX}group-name": "g"})
        | st.just({f"{_PREFIX}unconstrained-topology": "true"})
        | level.map(lambda one: {f"{_PREFIX}slice-required-topology": one, f"{_PREFIX}slice-size": "2"})
    )


def templates(*, topology: bool = True, priorities: tuple[str, ...] = ("", "batch")) -> st.SearchStrategy[Json]:
    """Pod templates. ``topology``: some have annotations of Kueue. ``priorities``: "" for none."""
    metadata = st.fixed_dictionaries(
        {},
        optional={
            "labels": st.dictionaries(_KEYS, _VALUES, max_size=3),
            "annotations": st.builds(
                lambda free, level: free | level,
                st.dictionaries(_KEYS, _VALUES, max_size=2),
                _topology() if topology else st.just({}),
            ),
        },
    )
    spec = st.fixed_dictionaries(
        {"containers": _containers("c", 1), "restartPolicy": st.sampled_from(["Never", "OnFailure"])},
        optional={
            "initContainers": _containers("i", 0),
            "nodeSelector": st.dictionaries(_KEYS, st.sampled_from(["a", "b"]), max_size=2),
            "tolerations": st.lists(_TOLERATION, max_size=2),
            "affinity": _AFFINITY,
            "topologySpreadConstraints": st.just(_SPREAD),
            "terminationGracePeriodSeconds": st.integers(0, 600),
            "hostNetwork": st.booleans(),
            "serviceAccountName": st.just("default"),
        },
    )
    volumes = {"volumes": [{"name": "scratch", "emptyDir": {}}]}
    return st.builds(
        lambda meta, pod, priority: {
            **({"metadata": meta} if meta else {}),
            "spec": {**pod, **volumes, **({"priorityClassName": priority} if priority else {})},
        },
        metadata,
        spec,
        st.sampled_from(priorities),
    )


def specs(
    template: st.SearchStrategy[Json] | None = None, *, most: int = 4, tasks: int = 10_000
) -> st.SearchStrategy[Json]:
    """Specs of Frameworks with some roles; with network, some placeholders of it are in use."""
    template = template if template is not None else templates()

    def role(name: str, number: int, pod: Json) -> Json:
        return {"name": name, "taskNumber": number, "task": {"pod": pod}}

    number = st.integers(0, 3) | st.integers(0, tasks)
    roles = st.lists(st.builds(role, _NAME, number, template), min_size=1, max_size=most, unique_by=lambda r: r["name"])

    def with_network(listed: list[Json], has_network: bool) -> Json:
        if not has_network:
            return {"taskRoles": listed}
        labels = listed[0]["task"]["pod"].setdefault("metadata", {}).get("labels") or {}
        listed[0]["task"]["pod"]["metadata"]["labels"] = {**labels, "rank": _RANKED}
        return {"taskRoles": listed, "network": {}}

    return st.builds(with_network, roles, st.booleans())
