"""Classification of failed Pods and refused creations as completion statuses.

Source: docs/failure-codes.md (classification, diagnostics) and docs/lifecycle.md, "When a Pod cannot be created".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import orjson

from frameworkcontroller.api import gojson
from frameworkcontroller.api.codec import pod_completion_body
from frameworkcontroller.api.completion import (
    CONTAINER_PERMANENT_FAILED,
    CONTAINER_TRANSIENT_CONFLICT_FAILED,
    CONTAINER_TRANSIENT_FAILED,
    CONTAINER_UNRECOGNIZED_FAILED_PHRASE,
    DISRUPTIONS,
    FAILED,
    POD_CREATION_PERMANENT_ERROR,
    POD_CREATION_UNKNOWN_ERROR,
    POD_FAILED_WITHOUT_FAILED_CONTAINER,
    Code,
    CompletionStatus,
    PodCompletion,
)
from frameworkcontroller.api.failurespec import ContainerPattern, FailureClass, FailureType, IntRange, PodPattern, Regex
from frameworkcontroller.api.objects import ContainerRecord, Disruption, PodRecord
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.machine.kernel.requests import Refused

_WHOLE = re.compile(".*", re.DOTALL)
"""Quotes the field in the diagnostics."""


def _exit_code(code: Code) -> FailureClass:
    # Not validated: these codes are reserved.
    exact = IntRange(min=code.code, max=code.code)
    container = ContainerPattern.model_construct(name_regex=_WHOLE, message_regex=_WHOLE, code_range=exact)
    kind = FailureType(attributes=list(code.attributes or ()))
    patterns = [PodPattern.model_construct(containers=(container,))]
    return FailureClass.model_construct(code=code.code, phrase=code.phrase, type=kind, pod_patterns=patterns)


BUILT_IN: tuple[FailureClass, ...] = (
    _exit_code(CONTAINER_TRANSIENT_FAILED),
    _exit_code(CONTAINER_TRANSIENT_CONFLICT_FAILED),
    _exit_code(CONTAINER_PERMANENT_FAILED),
)
"""The exit codes of the contract, which precede configured classes."""


class Classifier:
    """Classifies failed Pods: the built-in classes, then the configured ones in order; the first match wins."""

    def __init__(self, configured: Sequence[FailureClass] = ()) -> None:
        self._classes = [one for one in (*BUILT_IN, *configured) if one.code is not None]
        self._cascades = [pattern for one in configured if one.cascade for pattern in one.pod_patterns]

    def classify(self, pod: PodRecord) -> CompletionStatus:
        """The completion status of ``pod``, which is in phase Failed."""
        # Sidecars end with their Pod: their exit codes and messages are not the cause.
        containers = [container for container in pod.containers if not container.sidecar]
        for failure in self._classes:
            for pattern in failure.pod_patterns:
                matched = _match_pod(pattern, pod, containers)
                if matched is not None:
                    text = f"Pod failed: PodPattern matched: {_go_json(matched)}"
                    return CompletionStatus.of(failure.completion_code, text, pod=pod.completion)
        text = f"Pod failed: PodPattern unmatched: {_go_json(pod_completion_body(pod.completion))}"
        last = _last_to_fail(containers)
        if last is None and pod.disruption is not None:
            # The Pod garbage collector fails a Pod and then deletes it: the result must not depend on which is seen.
            return disrupted("Pod failed", pod.disruption, pod=pod.completion)
        if last is None:
            return CompletionStatus.of(POD_FAILED_WITHOUT_FAILED_CONTAINER, text, pod=pod.completion)
        code = Code(last, CONTAINER_UNRECOGNIZED_FAILED_PHRASE, FAILED, ())
        return CompletionStatus.of(code, text, pod=pod.completion)

    def cascading(self, pod: PodRecord) -> frozenset[str]:
        """The names of the containers of an ended Pod that failed as a consequence of another failure.

        By the entries with ``cascade``: the containers that a matching pattern names, or all if it names none.
        """
        containers = [container for container in pod.containers if not container.sidecar]
        found: set[str] = set()
        for pattern in self._cascades:
            if _match_pod(pattern, pod, containers) is None:
                continue
            found.update(
                one.completion.name
                for one in containers
                if not pattern.containers or any(_match_container(want, one) is not None for want in pattern.containers)
            )
        return frozenset(found)


_FINAL_REASONS = {
    "BadRequest": POD_CREATION_UNKNOWN_ERROR,
    "Forbidden": POD_CREATION_UNKNOWN_ERROR,
    "Invalid": POD_CREATION_PERMANENT_ERROR,
    "RequestEntityTooLarge": POD_CREATION_PERMANENT_ERROR,
}
_TOO_LARGE = 413
_TRANSIENT_TEXTS = ("object provided is unrecognized", "exceeded quota")
_STATUS_FIELDS = ("metadata", "status", "message", "reason", "details", "code")


def is_quota_refusal(refusal: Refused) -> bool:
    return "exceeded quota" in refusal.message


def classify_creation_refusal(refusal: Refused) -> CompletionStatus | None:
    """The completion status of a Task whose Pod the API server refused to create; None if it is to be retried.

    The reason decides, not the HTTP code: admission webhooks deny with any code.
    """
    code = _FINAL_REASONS.get(refusal.reason)
    if code is None and refusal.code == _TOO_LARGE:
        code = POD_CREATION_PERMANENT_ERROR
    if code is None or any(text in refusal.message for text in _TRANSIENT_TEXTS):
        return None
    return CompletionStatus.of(code, describe_creation_refusal("Pod", refusal))


def describe_creation_refusal(kind: str, refusal: Refused) -> str:
    """The API server's refusal to create an object, in the form that existing clients parse."""
    answered = orjson.loads(refusal.status_json)
    status = {field: answered[field] for field in _STATUS_FIELDS if answered.get(field) not in (None, "", 0)}
    return f"Failed to create {kind}: {_go_json({'ErrStatus': {'metadata': {}, **status}})}"


def disrupted(what: str, disruption: Disruption, *, pod: PodCompletion | None = None) -> CompletionStatus:
    """The completion status of a Pod that Kubernetes ended by a disruption. ``what``: how its end was observed."""
    text = f"{what}: {disruption.reason}: {disruption.message}"
    return CompletionStatus.of(DISRUPTIONS[disruption.reason], text, pod=pod)


def _match_pod(pattern: PodPattern, pod: PodRecord, containers: Sequence[ContainerRecord]) -> dict[str, Any] | None:
    matched = _match(
        ("name", pattern.name_regex, pod.name),
        ("reason", pattern.reason_regex, pod.reason),
        ("message", pattern.message_regex, pod.message),
    )
    if matched is None:
        return None
    found_containers = []
    for wanted in pattern.containers:
        matches = (_match_container(wanted, container) for container in containers)
        fields = next((fields for fields in matches if fields is not None), None)
        if fields is None:
            return None
        if fields:
            found_containers.append(fields)
    if found_containers:
        matched["containers"] = found_containers
    return matched


def _match_container(pattern: ContainerPattern, container: ContainerRecord) -> dict[str, Any] | None:
    completion = container.completion
    of_the_end = (pattern.reason_regex, pattern.message_regex, pattern.signal_range, pattern.code_range)
    if not container.terminated and any(of_the_end):
        return None
    return _match(
        ("name", pattern.name_regex, completion.name),
        ("reason", pattern.reason_regex, completion.reason),
        ("message", pattern.message_regex, completion.message),
        ("signal", pattern.signal_range, completion.signal),
        ("code", pattern.code_range, completion.code),
    )


def _match(*fields: tuple[str, Regex | IntRange | None, Any]) -> dict[str, Any] | None:
    """The matched parts of the fields; None if a field does not match its pattern."""
    matched = {}
    for key, pattern, value in fields:
        if not pattern:
            continue
        if isinstance(pattern, IntRange):
            part = value if value in pattern else None
        else:
            found = pattern.search(value)
            part = None if found is None else found.group()
        if part is None:
            return None
        # An empty match or 0 is reported for the name and the exit code only.
        if part or key in ("name", "code"):
            matched[key] = part
    return matched


def _last_to_fail(containers: Sequence[ContainerRecord]) -> int | None:
    """Exit code of the last container to fail (with non-zero code); the first one if several tie."""
    failed = [container for container in containers if container.terminated and container.completion.code != 0]
    return max(failed, key=_finished).completion.code if failed else None


def _finished(container: ContainerRecord) -> int:
    with suppress(ValueError):
        return parse_time(container.finished) if container.finished else 0
    return 0


def _go_json(body: dict[str, Any]) -> str:
    return gojson.encode(body).decode()
