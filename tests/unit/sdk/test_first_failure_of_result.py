"""The first failure that the SDK raises."""

from typing import Any

import orjson

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.sdk.exceptions import FrameworkFailed
from frameworkcontroller.sdk.runstatus import read_result, read_status
from tests.support.bench import role
from tests.support.failures import GLOO, bench_of, end, fail


def body_of(*ends: tuple[int, int, str]) -> dict[str, Any]:
    """A Framework whose Tasks have failed: exit code, seconds and log of each, as they are seen."""
    bench = bench_of(role(number=len(ends), failed=len(ends)))
    for index, (code, after, words) in enumerate(ends):
        fail(bench, f"f-a-{index}", end(code=code, after=after, message=words), node=f"node-{index}")
    return {"metadata": {"name": "f"}, "status": orjson.loads(encode_status("f", bench.status))}


def test_the_task_that_failed_first_not_the_one_that_met_the_policy() -> None:
    status = read_status(body_of((1, 5, GLOO), (7, 4, "ValueError: bad batch"), (1, 5, GLOO)))
    result = read_result(status)
    failure = FrameworkFailed("f", result).first_failure
    assert failure is not None
    assert failure is result.first_failure
    assert (failure.name, failure.node, failure.container, failure.code) == ("a[1]", "node-1", "main", 7)
    assert (failure.message, failure.certain) == ("main exited with 7: ValueError: bad batch", True)
    assert failure.rule.startswith("1 ContainerUnrecognizedFailed, by a[2]: ")


def test_a_status_of_an_older_controller_has_the_task_that_met_the_policy() -> None:
    body = body_of((1, 5, GLOO), (7, 4, "ValueError: bad batch"))
    del body["status"]["firstFailure"]
    failure = read_result(read_status(body)).first_failure
    assert failure is not None
    assert (failure.name, failure.container, failure.certain) == ("a[1]", "", False)
