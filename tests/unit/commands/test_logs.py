"""The containers that have logs, and the order of lines."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.podlog import NotALog
from frameworkcontroller.views.apiobjects import pod_selector
from frameworkcontroller.views.loglines import read_lines, sources_of


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
    assert pod_selector("f", None, None) == "FC_FRAMEWORK_NAME=f"
    assert pod_selector("f", "a", None) == "FC_FRAMEWORK_NAME=f,FC_TASKROLE_NAME=a"
    assert pod_selector("f", "a", 0) == "FC_FRAMEWORK_NAME=f,FC_TASKROLE_NAME=a,FC_TASK_INDEX=0"


class Kubelet:
    """In place of a client: answers with chunks of a log."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks

    @asynccontextmanager
    async def log(self, *_names: str, **_options: str | int) -> AsyncIterator[AsyncIterator[bytes]]:
        async def chunks() -> AsyncIterator[bytes]:
            for chunk in self._chunks:
                yield chunk

        yield chunks()


async def read(*chunks: bytes) -> tuple[list[bytes], str]:
    """The texts of the lines, and the node's error in place of a log."""
    found: list[bytes] = []
    client = cast("KubeClient", Kubelet(*chunks))
    try:
        async for line in read_lines(client, sources_of(pod("y"), None)[0], follow=False):
            found.append(line.text)  # noqa: PERF401 - kept when it fails
    except NotALog as error:
        return found, str(error)
    return found, ""


STAMP = b"2026-01-02T03:04:05.123456789Z"


@pytest.mark.parametrize(
    ("chunks", "lines", "answer"),
    [
        ([STAMP + b" a\n" + STAMP[:9], STAMP[9:] + b" b"], [b"a", b"b"], ""),
        ([b"2026-01-02T03:04:05+01:00 \n"], [b""], ""),
        (
            [b"unable to retrieve container logs for containerd://b91c"],
            [],
            "its node answers: unable to retrieve container logs for containerd://b91c",
        ),
        (
            [STAMP + b' a\nfailed to try resolving symlinks in path "/x": lstat /x: no such file\nor'],
            [b"a"],
            'its node answers: failed to try resolving symlinks in path "/x": lstat /x: no such file or',
        ),
        ([b"x\n", b"y\n" * 5000], [], "its node answers: x" + " y" * 149 + "…"),
    ],
)
async def test_an_error_of_the_kubelet_is_no_log(chunks: list[bytes], lines: list[bytes], answer: str) -> None:
    assert await read(*chunks) == (lines, answer)


@pytest.mark.timeout(20)
async def test_a_long_line_takes_time_in_proportion_to_its_length() -> None:
    chunk = b"x" * 1024
    long, *rest = (await read(STAMP + b" ", *[chunk] * 32_768, b"\n" + STAMP + b" end"))[0]
    assert (len(long), rest) == (32 << 20, [b"end"])
