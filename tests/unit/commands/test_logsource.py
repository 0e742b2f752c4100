"""Which containers of which Pods have logs, and the order of their lines."""

from typing import Any

import pytest

from frameworkcontroller.commands.logsource import selector, sources_of


def pod(*started: str, attempt: str = "0", default: str | None = None, name: str = "f-a-3") -> dict[str, Any]:
    annotations = {"FC_TASK_ATTEMPT_ID": attempt}
    if default:
        annotations["kubectl.kubernetes.io/default-container"] = default
    statuses = [{"name": one, "state": {"running": {}} if one in started else {"waiting": {}}} for one in "xyz"]
    return {
        "metadata": {"name": name, "namespace": "d", "uid": "u", "annotations": annotations},
        "spec": {"initContainers": [{"name": "x"}], "containers": [{"name": "y"}, {"name": "z"}]},
        "status": {"initContainerStatuses": statuses[:1], "containerStatuses": statuses[1:]},
    }


@pytest.mark.parametrize(
    ("body", "container", "every", "expected"),
    [
        (pod("x", "y", "z"), None, False, ["y"]),
        (pod("x", "y", "z", default="z"), None, False, ["z"]),
        (pod("x", "y", "z", default="z"), "x", False, ["x"]),
        (pod("x", "y", "z"), None, True, ["x", "y", "z"]),
        (pod("x"), None, True, ["x"]),
        (pod("x"), None, False, []),
        (pod("y", name="somebody-elses"), None, False, []),
    ],
)
def test_containers(body: dict[str, Any], container: str | None, every: bool, expected: list[str]) -> None:
    assert [source.container for source in sources_of(body, container, every=every)] == expected


def test_labels() -> None:
    assert [source.label for attempt in "02" for source in sources_of(pod("y", attempt=attempt), None)] == [
        "a[3]",
        "a[3]#2",
    ]


def test_a_restarted_container_is_another_source() -> None:
    body = pod("y")
    before = sources_of(body, None)
    body["status"]["containerStatuses"][0]["restartCount"] = 1
    assert sources_of(body, None) != before


def test_selectors() -> None:
    assert selector("f", None, None) == "FC_FRAMEWORK_NAME=f"
    assert selector("f", "a", None) == "FC_FRAMEWORK_NAME=f,FC_TASKROLE_NAME=a"
    assert selector("f", "a", 0) == "FC_FRAMEWORK_NAME=f,FC_TASKROLE_NAME=a,FC_TASK_INDEX=0"
