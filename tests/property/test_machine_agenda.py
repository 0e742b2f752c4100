"""Plans of touched Tasks have the same results as plans of all Tasks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from frameworkcontroller.machine.kernel.model import Limits
from tests.support.history import EXIT_CODES, LIMITS, History

# One delay: how many are drawn before the one that counts depends on how often the Framework is looked at.
FIXED: Limits = replace(
    LIMITS,
    framework_min_retry_delay_sec_for_transient_conflict_failed=10,
    framework_max_retry_delay_sec_for_transient_conflict_failed=10,
)
UIDS = re.compile(rb"[0-9a-f]{8}-[0-9a-f-]{27}|(?:pod|configmap)-\d+|10\.0\.0\.\d+")
Operation = Callable[[History], None]
ROLES = st.sampled_from("ab")
RETRY = st.sampled_from([0, 1, 2, -1])


def operations() -> st.SearchStrategy[Operation]:
    """The operations, without faults."""
    return st.one_of(
        st.builds(
            lambda which, what, code: lambda history: history.kubelet(which, what, code),
            st.integers(0, 5),
            st.sampled_from(["Running", "end", "end", "Unknown", "bind"]),
            st.sampled_from(EXIT_CODES),
        ),
        st.builds(lambda role, number: lambda history: history.rescale(role, number), ROLES, st.integers(0, 4)),
        st.builds(lambda role: lambda history: history.drop(role), ROLES),
        st.builds(
            lambda role, fancy, limit: lambda history: history.set_retry(role, fancy=fancy, limit=limit),
            st.none() | ROLES,
            st.booleans(),
            RETRY,
        ),
        st.builds(
            lambda role, failed, succeeded: lambda history: history.set_completion(role, failed, succeeded),
            ROLES,
            st.integers(0, 2),
            st.integers(0, 2),
        ),
        st.builds(
            lambda role, seconds: lambda history: history.set_timeout(role, seconds),
            ROLES,
            st.sampled_from([None, 0, 60]),
        ),
        st.builds(lambda which: lambda history: history.delete_pod(which, force=False), st.integers(0, 5)),
        st.builds(lambda lost: lambda history: history.lose_node(lost=lost), st.booleans()),
        st.builds(lambda seconds: lambda history: history.wait(seconds), st.sampled_from([1, 200])),
        st.builds(lambda seconds: lambda history: history.tick(seconds), st.sampled_from([1, 50, 400])),
        st.builds(lambda pods: lambda history: history.set_quota(pods), st.sampled_from([None, 1])),
        st.just(lambda history: history.delete_configmap()),
        st.just(lambda history: history.crash(0)),
        st.just(lambda history: history.annotate()),
    )


def told(history: History) -> Any:
    """The stored status, with UIDs named in the order in which they appear."""
    framework = history.framework
    if framework is None:
        return None
    seen: dict[bytes, bytes] = {}
    raw = orjson.dumps(framework.get("status"))
    return orjson.loads(UIDS.sub(lambda found: seen.setdefault(found[0], b"#%d" % len(seen)), raw))


@settings(max_examples=60)
@given(st.lists(operations(), max_size=25))
def test_touching_changed_tasks_has_the_same_results_as_touching_all(steps: list[Operation]) -> None:
    spec = {
        "taskRoles": [
            {"name": "a", "taskNumber": 2, "task": {"retryPolicy": {"maxRetryCount": 1}}},
            {"name": "b", "taskNumber": 1, "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": 1}},
        ],
        "retryPolicy": {"fancyRetryPolicy": True, "maxRetryCount": 1},
    }
    sparing, thorough = History(limits=FIXED), History(thorough=True, limits=FIXED)
    for history in (sparing, thorough):
        history.create(orjson.loads(orjson.dumps(spec)))
        history.settle()
    for step in steps:
        for history in (sparing, thorough):
            step(history)
            history.settle()
        assert told(sparing) == told(thorough), sparing.world.violation("sparing")
