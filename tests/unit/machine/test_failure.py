"""Classification of failed Pods and of refused creations (docs/failure-codes.md, docs/lifecycle.md)."""

from typing import Any

import orjson
import pytest

from frameworkcontroller.api.completion import CompletionStatus, ContainerCompletion, PodCompletion
from frameworkcontroller.api.failurespec import ContainerPattern, FailureClass, FailureType, IntRange, PodPattern
from frameworkcontroller.api.objects import pod_record
from frameworkcontroller.machine.kernel.failure import (
    Classifier,
    classify_creation_refusal,
    is_quota_refusal,
)
from frameworkcontroller.machine.kernel.requests import Refused
from tests.support.bench import Body


def container(name: str = "main", code: int | None = 1, second: int = 0, **ended: object) -> Body:
    """A container's status; ``code`` None: not terminated; ``second``: when it ended."""
    if code is None:
        return {"name": name, "state": {"running": {}}}
    terminated = {"exitCode": code, "finishedAt": f"2026-01-31T12:00:{second:02}Z", **ended}
    return {"name": name, "state": {"terminated": terminated}}


def classify(
    *containers: Body,
    init: tuple[Body, ...] = (),
    classes: tuple[FailureClass, ...] = (),
    name: str = "f-a-0",
    sidecars: tuple[str, ...] = (),
    **status: object,
) -> CompletionStatus:
    """How a Pod that failed so is classified."""
    body = {
        "metadata": {"name": name, "namespace": "ns", "uid": "u", "resourceVersion": "1"},
        "spec": {"initContainers": [{"name": one, "restartPolicy": "Always"} for one in sidecars]},
        "status": {
            "phase": "Failed",
            "initContainerStatuses": list(init),
            "containerStatuses": list(containers),
            **status,
        },
    }
    return Classifier(classes).classify(pod_record(body))


def pod_pattern(**fields: Any) -> PodPattern:
    """A pattern with the regular expressions as text."""
    return PodPattern(**fields)


def container_pattern(**fields: Any) -> ContainerPattern:
    """A pattern with the regular expressions as text."""
    return ContainerPattern(**fields)


def configured(*patterns: PodPattern, code: int = 300, phrase: str = "Mine") -> FailureClass:
    """A podFailureSpec entry."""
    return FailureClass(code=code, phrase=phrase, type=FailureType(attributes=["Transient"]), pod_patterns=[*patterns])


def matches(pattern: ContainerPattern, *containers: Body, init: tuple[Body, ...] = ()) -> bool:
    """Whether a Pod of such containers matches that container pattern."""
    return classify(*containers, init=init, classes=(configured(pod_pattern(containers=(pattern,))),)).code == 300


# --- built-in classes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "phrase", "attributes"),
    [
        (200, "ContainerTransientFailed", ("Transient",)),
        (201, "ContainerTransientConflictFailed", ("Transient", "Conflict")),
        (210, "ContainerPermanentFailed", ("Permanent",)),
    ],
)
@pytest.mark.parametrize(
    ("message", "quoted"), [("why", '"message":"why",'), ("one\ntwo", '"message":"one\\ntwo",'), ("", "")]
)
def test_exit_codes_of_the_contract(
    code: int, phrase: str, attributes: tuple[str, ...], message: str, quoted: str
) -> None:
    found = classify(container(code=code, reason="Error", message=message))
    assert (found.code, found.phrase, found.type_name, found.attributes) == (code, phrase, "Failed", attributes)
    text = f'Pod failed: PodPattern matched: {{"containers":[{{"name":"main",{quoted}"code":{code}}}]}}'
    assert found.diagnostics == text


@pytest.mark.parametrize("code", [1, 199, 202, 209, 211, 219, -200])
def test_any_other_code_is_unrecognized(code: int) -> None:
    found = classify(container(code=code))
    assert (found.code, found.phrase) == (code, "ContainerUnrecognizedFailed")
    assert (found.type_name, found.attributes) == ("Failed", ())


def test_built_in_comes_before_configured() -> None:
    anything = configured(pod_pattern(containers=(container_pattern(name_regex=".*"),)))
    assert classify(container(code=200), classes=(anything,)).code == 200
    assert classify(container(code=1), classes=(anything,)).code == 300


def test_the_first_built_in_that_matches_any_container_wins() -> None:
    assert classify(container("one", 210), container("two", 200)).code == 200


def test_the_first_configured_that_matches_wins() -> None:
    first = configured(pod_pattern(reason_regex="Evicted"), code=-1000)
    second = configured(pod_pattern(reason_regex=".*"), code=-1001)
    assert classify(classes=(first, second), reason="Evicted").code == -1000
    assert classify(classes=(first, second), reason="Other").code == -1001
    assert classify(classes=(second, first), reason="Evicted").code == -1001


def test_any_pattern_of_a_code_will_do() -> None:
    both = configured(pod_pattern(reason_regex="^A$"), pod_pattern(reason_regex="^B$"))
    assert classify(classes=(both,), reason="B").code == 300
    assert classify(classes=(both,), reason="C").code == -300


def test_a_configured_type_is_kept() -> None:
    untyped = FailureClass(code=301, pod_patterns=[pod_pattern(reason_regex="x")])
    found = classify(classes=(untyped,), reason="x")
    assert (found.code, found.phrase, found.type_name, found.attributes) == (301, "", "Failed", None)


# --- pod patterns -----------------------------------------------------------------------------------------------


def test_all_given_fields_of_a_pod_pattern_must_match() -> None:
    pattern = pod_pattern(name_regex="a-0$", reason_regex="Evi", message_regex="node")
    classes = (configured(pattern),)
    found = classify(classes=classes, reason="Evicted", message="The node was low")
    assert found.diagnostics == 'Pod failed: PodPattern matched: {"name":"a-0","reason":"Evi","message":"node"}'
    assert classify(classes=classes, name="f-a-1", reason="Evicted", message="The node was low").code == -300
    assert classify(classes=classes, reason="Lost", message="The node was low").code == -300
    assert classify(classes=classes, reason="Evicted", message="").code == -300


def test_regexes_are_searched_and_not_anchored_and_know_flags() -> None:
    classes = (configured(pod_pattern(reason_regex="(?i)evic", message_regex="(?ms)^b.*d$")),)
    found = classify(classes=classes, reason="PodEvicted", message="a\nb\nc\nd")
    assert found.diagnostics == 'Pod failed: PodPattern matched: {"reason":"Evic","message":"b\\nc\\nd"}'


def test_each_container_pattern_needs_some_container() -> None:
    two = pod_pattern(
        containers=(container_pattern(name_regex="^one$"), container_pattern(code_range=IntRange(min=7, max=7))),
    )
    classes = (configured(two),)
    found = classify(container("one", 0), container("two", 7), classes=classes)
    assert found.diagnostics == 'Pod failed: PodPattern matched: {"containers":[{"name":"one"},{"code":7}]}'
    # One container may satisfy both.
    assert classify(container("one", 7), classes=classes).code == 300
    assert classify(container("one", 8), container("two", 9), classes=classes).code != 300


def test_init_containers_come_first() -> None:
    pattern = container_pattern(name_regex=".*", code_range=IntRange(min=1))
    classes = (configured(pod_pattern(containers=(pattern,))),)
    found = classify(container("main", 5), init=(container("setup", 6),), classes=classes)
    assert found.diagnostics == 'Pod failed: PodPattern matched: {"containers":[{"name":"setup","code":6}]}'


def test_the_order_of_a_containers_fields() -> None:
    pattern = container_pattern(
        name_regex="main",
        reason_regex="OOM",
        message_regex="mem",
        signal_range=IntRange(min=9, max=9),
        code_range=IntRange(min=1),
    )
    classes = (configured(pod_pattern(containers=(pattern,))),)
    found = classify(container(code=137, reason="OOMKilled", message="out of memory", signal=9), classes=classes)
    assert found.diagnostics == (
        'Pod failed: PodPattern matched: {"containers":[{"name":"main","reason":"OOM","message":"mem",'
        '"signal":9,"code":137}]}'
    )


@pytest.mark.parametrize(
    ("low", "high", "inside", "outside"),
    [
        (1, 3, (1, 2, 3), (4, 5)),
        (125, 125, (125,), (124, 126)),
        (None, 2, (1, 2), (3,)),
        (2, None, (2, 300), (1,)),
    ],
)
def test_ranges_hold_both_ends(
    low: int | None, high: int | None, inside: tuple[int, ...], outside: tuple[int, ...]
) -> None:
    for code in inside:
        assert matches(container_pattern(code_range=IntRange(min=low, max=high)), container(code=code))
        assert matches(container_pattern(signal_range=IntRange(min=low, max=high)), container(code=1, signal=code))
    for code in outside:
        assert not matches(container_pattern(code_range=IntRange(min=low, max=high)), container(code=code))
        assert not matches(container_pattern(signal_range=IntRange(min=low, max=high)), container(code=1, signal=code))


def test_all_fields_except_the_name_are_of_the_terminated_state() -> None:
    running = container("main", None)
    assert matches(container_pattern(name_regex="main"), running)
    assert not matches(container_pattern(code_range=IntRange(max=0)), running)
    assert not matches(container_pattern(reason_regex=".*"), running)
    assert not matches(container_pattern(message_regex=".*"), running)
    assert not matches(container_pattern(signal_range=IntRange(min=0, max=0)), running)
    assert matches(container_pattern(code_range=IntRange(min=0, max=0)), running, container("other", 0))


# --- unmatched --------------------------------------------------------------------------------------------------


def test_unmatched_tells_the_whole_pod() -> None:
    found = classify(
        container("main", 3, 5, reason="Error", message="bad <input> & more", signal=0),
        container("side", None),
        init=(container("setup", 0, 1, reason="Completed"),),
        reason="Failed",
        message="it failed",
    )
    assert found.diagnostics == (
        'Pod failed: PodPattern unmatched: {"reason":"Failed","message":"it failed","containers":['
        '{"name":"setup","reason":"Completed","code":0},'
        '{"name":"main","reason":"Error","message":"bad \\u003cinput\\u003e \\u0026 more","code":3},'
        '{"name":"side","code":0}]}'
    )
    assert found.pod == PodCompletion(
        "Failed",
        "it failed",
        (
            ContainerCompletion("setup", 0, "Completed"),
            ContainerCompletion("main", 3, "Error", "bad <input> & more"),
            ContainerCompletion("side", 0),
        ),
    )


def test_without_a_failed_container() -> None:
    for containers in ((), (container(code=0),), (container(code=None),)):
        found = classify(*containers, reason="Evicted")
        assert (found.code, found.phrase) == (-300, "PodFailedWithoutFailedContainer")
        assert (found.type_name, found.attributes) == ("Failed", ())
    assert classify().diagnostics == "Pod failed: PodPattern unmatched: {}"


@pytest.mark.parametrize(
    ("containers", "init", "code"),
    [
        ((container("one", 1, 10), container("two", 2, 20)), (), 2),
        ((container("one", 1, 20), container("two", 2, 10)), (), 1),
        # The first one among equals; init containers come first.
        ((container("one", 1, 10), container("two", 2, 10)), (), 1),
        ((container("one", 1, 10),), (container("setup", 3, 10),), 3),
        ((container("one", 1, 10), container("two", 0, 20)), (), 1),
        ((container("one", 1, 10), container("two", None)), (), 1),
    ],
)
def test_the_code_of_the_last_container_to_fail(
    containers: tuple[Body, ...], init: tuple[Body, ...], code: int
) -> None:
    assert classify(*containers, init=init).code == code


def test_a_container_that_says_no_time_still_counts() -> None:
    odd = {"name": "main", "state": {"terminated": {"exitCode": 4, "finishedAt": None}}}
    assert classify(odd).code == 4


# --- disruptions ------------------------------------------------------------------------------------------------

GONE_NODE = [
    {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
    }
]


def test_a_pod_that_its_garbage_collector_marks_as_failed() -> None:
    """It writes phase and condition, no reason, and the containers' statuses are from before the node was lost."""
    found = classify(container(code=None), conditions=GONE_NODE)
    assert (found.code, found.phrase, found.attributes) == (-1011, "PodDeletedByPodGC", ("Transient",))
    assert found.diagnostics == "Pod failed: DeletionByPodGC: PodGC: node no longer exists"
    assert found.pod is not None


def test_the_containers_of_a_disrupted_pod_come_first() -> None:
    assert classify(container(code=210), conditions=GONE_NODE).code == 210
    assert classify(container(code=7), conditions=GONE_NODE).code == 7
    evicted = configured(pod_pattern(reason_regex="Evicted"), code=-1000)
    assert classify(conditions=GONE_NODE, reason="Evicted", classes=(evicted,)).code == -1000


# --- sidecars ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [143, 137, 2, 200, 210])
def test_a_sidecar_does_not_decide(code: int) -> None:
    """It is ended after the containers, by a signal as a rule."""
    signal = configured(pod_pattern(containers=(container_pattern(code_range=IntRange(min=code, max=code)),)))
    proxy = container("proxy", code, second=9)
    found = classify(container(code=1, second=5), init=(proxy,), sidecars=("proxy",), classes=(signal,))
    assert (found.code, found.phrase) == (1, "ContainerUnrecognizedFailed")


def test_no_pattern_matches_a_sidecar() -> None:
    named = configured(pod_pattern(containers=(container_pattern(name_regex="proxy"),)))
    assert classify(container(code=1), init=(container("proxy", 1),), sidecars=("proxy",), classes=(named,)).code == 1
    assert classify(container("proxy", 1), sidecars=("proxy",), classes=(named,)).code == 300


def test_a_failed_sidecar_is_no_failed_container() -> None:
    assert classify(container(code=0), init=(container("proxy", 143),), sidecars=("proxy",)).code == -300


def test_an_init_container_that_ran_to_its_end_decides_in_addition_to_a_sidecar() -> None:
    inits = (container("proxy", 143, second=9), container("barrier", 201))
    assert classify(init=inits, sidecars=("proxy",)).code == 201


def test_a_sidecar_is_in_the_diagnostics_and_in_the_status() -> None:
    found = classify(container(code=1), init=(container("proxy", 143),), sidecars=("proxy",))
    assert found.diagnostics == (
        'Pod failed: PodPattern unmatched: {"containers":[{"name":"proxy","code":143},{"name":"main","code":1}]}'
    )
    assert found.pod is not None
    assert [one.name for one in found.pod.containers] == ["proxy", "main"]


def test_texts_are_escaped_as_clients_are_used_to() -> None:
    text = classify(container(code=1, message="<a href='x'>\"é\"\\\t& \u2028\u2029</a>")).diagnostics
    said = text.removeprefix("Pod failed: PodPattern unmatched: ")
    assert said == (
        '{"containers":[{"name":"main","message":"\\u003ca href=\'x\'\\u003e\\"é\\"\\\\\\t\\u0026 '
        '\\u2028\\u2029\\u003c/a\\u003e","code":1}]}'
    )
    assert orjson.loads(said)["containers"][0]["message"] == "<a href='x'>\"é\"\\\t& \u2028\u2029</a>"


# --- creation ---------------------------------------------------------------------------------------------------


def refusal(code: int, reason: str, message: str = "no", **fields: Any) -> Refused:
    """A refusal of that code and reason; ``fields`` are more of its Status."""
    status = {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message, **fields}
    return Refused(code, message, orjson.dumps(status), reason=reason)


@pytest.mark.parametrize(
    ("code", "reason", "expected", "phrase", "attributes"),
    [
        (400, "BadRequest", -310, "PodCreationUnknownError", ()),
        (403, "Forbidden", -310, "PodCreationUnknownError", ()),
        (422, "Invalid", -200, "PodCreationPermanentError", ("Permanent",)),
        (413, "RequestEntityTooLarge", -200, "PodCreationPermanentError", ("Permanent",)),
        # A webhook answers with the code and the reason that its author chose.
        (400, "Forbidden", -310, "PodCreationUnknownError", ()),
        (403, "Invalid", -200, "PodCreationPermanentError", ("Permanent",)),
        (409, "Forbidden", -310, "PodCreationUnknownError", ()),
        (500, "Invalid", -200, "PodCreationPermanentError", ("Permanent",)),
        (422, "RequestEntityTooLarge", -200, "PodCreationPermanentError", ("Permanent",)),
        (413, "", -200, "PodCreationPermanentError", ("Permanent",)),
        (413, "TooLarge", -200, "PodCreationPermanentError", ("Permanent",)),
    ],
)
def test_creations_that_are_refused_permanently(
    code: int, reason: str, expected: int, phrase: str, attributes: tuple[str, ...]
) -> None:
    found = classify_creation_refusal(refusal(code, reason))
    assert found is not None
    assert (found.code, found.phrase, found.attributes) == (expected, phrase, attributes)


@pytest.mark.parametrize("code", [400, 401, 403, 404, 405, 406, 409, 410, 415, 422, 429, 500, 503, 504])
@pytest.mark.parametrize("reason", ["", "NotFound", "AlreadyExists", "Conflict", "Timeout", "PolicyDenied", "invalid"])
def test_everything_else_is_transient(code: int, reason: str) -> None:
    assert classify_creation_refusal(refusal(code, reason)) is None


@pytest.mark.parametrize(("code", "reason"), [(400, "BadRequest"), (403, "Forbidden"), (413, ""), (422, "Invalid")])
@pytest.mark.parametrize("text", ["object provided is unrecognized", "exceeded quota"])
def test_texts_that_are_transient_with_any_reason(text: str, code: int, reason: str) -> None:
    assert classify_creation_refusal(refusal(code, reason, f"pods is forbidden: {text}: q")) is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {},
            '{"metadata":{},"message":"\\u003cno\\u003e","reason":"Invalid","code":422}',
        ),
        (
            {"details": {"name": "f-a-0", "kind": "Pod"}, "status": "Failure", "metadata": {}, "neverheardof": 1},
            '{"metadata":{},"status":"Failure","message":"\\u003cno\\u003e","reason":"Invalid",'
            '"details":{"name":"f-a-0","kind":"Pod"},"code":422}',
        ),
        (
            {"details": {}, "status": "", "metadata": {"resourceVersion": "7"}, "message": ""},
            '{"metadata":{"resourceVersion":"7"},"reason":"Invalid","details":{},"code":422}',
        ),
    ],
)
def test_a_refusal_is_quoted_as_the_original_quotes_it(fields: dict[str, Any], expected: str) -> None:
    found = classify_creation_refusal(refusal(422, "Invalid", **{"message": "<no>", **fields}))
    assert found is not None
    assert found.diagnostics == f'Failed to create Pod: {{"ErrStatus":{expected}}}'


def test_refusals_because_of_quota() -> None:
    assert is_quota_refusal(refusal(403, "Forbidden", "exceeded quota: q"))
    assert not is_quota_refusal(refusal(403, "Forbidden", "a webhook says no"))
