"""Failure rules: the first rule that matches decides, and every failure has one decision."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.api.completion import FailureAction
from frameworkcontroller.api.objects import pod_record
from frameworkcontroller.api.spec import FailurePolicy, parse_spec
from frameworkcontroller.machine.kernel.failure import Classifier
from frameworkcontroller.machine.kernel.policy import decide_task_retry
from frameworkcontroller.machine.kernel.rules import with_rule

Json = dict[str, Any]

CODES = st.sampled_from([1, 2, 137, 200, 210])
OPERATORS = st.sampled_from(["In", "NotIn"])
VALUES = st.lists(CODES, min_size=1, unique=True)
NAMES = st.sampled_from([None, "main", "other"])
TYPES = st.sampled_from(["DisruptionTarget", "Ready"])
STATUSES = st.sampled_from(["True", "False", "Unknown"])
RULES = st.lists(
    st.fixed_dictionaries({"action": st.sampled_from(list(FailureAction))}).flatmap(
        lambda action: st.one_of(
            st.builds(
                lambda operator, values, name: {
                    **action,
                    "onExitCodes": {"operator": operator, "values": values, "containerName": name},
                },
                OPERATORS,
                VALUES,
                NAMES,
            ),
            st.builds(
                lambda operator, values: {**action, "onCompletionCodes": {"operator": operator, "values": values}},
                OPERATORS,
                VALUES,
            ),
            st.builds(
                lambda kind, status: {**action, "onPodConditions": [{"type": kind, "status": status}]}, TYPES, STATUSES
            ),
        )
    ),
    max_size=6,
)
CONTAINERS = st.dictionaries(st.sampled_from(["main", "other", "third"]), st.one_of(st.just(0), CODES), min_size=1)
CONDITIONS = st.dictionaries(TYPES, STATUSES)


def policy(rules: list[Json]) -> FailurePolicy:
    """The parsed policy with these rules."""
    task = {"podFailurePolicy": {"rules": rules}}
    found = parse_spec({"taskRoles": [{"name": "a", "task": task}]}).task_roles[0].task.pod_failure_policy
    assert found is not None
    return found


@given(rules=RULES, containers=CONTAINERS, conditions=CONDITIONS, fancy=st.booleans(), used=st.integers(0, 2))
def test_the_first_rule_that_matches_decides(
    rules: list[Json], containers: dict[str, int], conditions: dict[str, str], fancy: bool, used: int
) -> None:
    pod = pod_record(
        {
            "metadata": {"namespace": "ns", "name": "f-a-0", "uid": "u", "resourceVersion": "1"},
            "status": {
                "phase": "Failed",
                "containerStatuses": [
                    {"name": name, "state": {"terminated": {"exitCode": code}}} for name, code in containers.items()
                ],
                "conditions": [{"type": kind, "status": status} for kind, status in conditions.items()],
            },
        }
    )
    completion = Classifier().classify(pod)
    alone = [with_rule(policy([rule]), completion, pod).policy is not None for rule in rules]
    decided = with_rule(policy(rules), completion, pod)
    spec = parse_spec({"retryPolicy": {"fancyRetryPolicy": fancy, "maxRetryCount": 1}}).retry_policy
    decision = decide_task_retry(spec, decided, used)
    without = decide_task_retry(spec, completion, used)
    assert decided.code == completion.code
    if not any(alone):
        assert decided.policy is None
        assert decision == without
        return
    assert decided.policy is not None
    assert decided.policy.rule == alone.index(True)
    action = decided.policy.action
    assert action == rules[alone.index(True)]["action"]
    if action is FailureAction.COUNT:
        assert decision == without
    else:
        assert (decision.retry, decision.accountable) == (action is FailureAction.IGNORE, False)
        assert decision.reason
