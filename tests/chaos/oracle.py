"""The state that a Framework must reach without faults, by the contract and not by the code.

Sources: docs/failures-and-retries.md, "Completion", "Retry" and "Failure rules"; docs/reference.md, "spec". It knows
spec, status and simulated behavior of Pods as plain JSON, and nothing of the machine.
"""

from collections.abc import Collection, Mapping
from typing import Final

from frameworkcontroller.api import names
from frameworkcontroller.local.kubelet.simulation import PREFIX
from tests.support.frameworks import Json
from tests.support.queueguarantees import QUEUE_LABEL

_NEVER_RETRIED: Final = (-210, -220, -230, -250)
_ALWAYS_RETRIED: Final = (-240, -241)


def why_not_at_end(framework: Json, pods: Mapping[str, Json], before: Json | None) -> str | None:
    """None if the Framework is in a state in which its policies let it rest, else the next expected event.

    ``pods``: those there are, by UID. ``before``: its status when the faults stopped. A policy without a limit
    has no end: there, progress since then is enough.
    """
    spec, status = framework["spec"], framework.get("status")
    if not status:
        return "it has no status"
    if status.get("observedGeneration") != framework["metadata"]["generation"]:
        return "the newest spec is not observed"
    recorded = {
        task["attemptStatus"]["podUID"]
        for role in status["attemptStatus"]["taskRoleStatuses"]
        for task in role["taskStatuses"]
    }
    for pod in pods.values():
        owner = (pod["metadata"].get("annotations") or {}).get(names.FRAMEWORK_UID)
        if owner == framework["metadata"]["uid"] and pod["metadata"]["uid"] not in recorded:
            return f"Pod {pod['metadata']['name']} is there, and no Task of its has it"
    state, execution = status["state"], spec.get("executionType", "Start")
    if state == "Completed":
        completion = status["attemptStatus"]["completionStatus"]
        again = execution != "Stop" and _is_due(spec, status["retryPolicyStatus"], completion)
        return "it is Completed, and was to be retried" if again else None
    if execution == "Stop":
        return f"it was to be stopped, and is {state}"
    if execution == "Create":
        return None if state == "AttemptCreationPending" else f"it was not to be started, and is {state}"
    if spec.get("suspend"):
        suspended = any(one["type"] == "Suspended" and one["status"] == "True" for one in status["conditions"])
        return None if suspended else f"it was to be suspended, and is {state}"
    if _moves_for_ever(spec) and _progress(status) > (_progress(before) if before else (0, 0)):
        return None
    if state == "AttemptCreationPending" and not spec["taskRoles"] and _is_queued(framework):
        # Kueue cannot admit it (docs/shared-clusters.md, "Queues").
        return None
    if spec.get("activeDeadlineSeconds") is not None:
        return f"it was to end by its deadline, and is {state}"
    if state not in ("AttemptPreparing", "AttemptRunning"):
        return f"it is {state}"
    return _why_attempt_not_at_end(spec, status, pods)


def _is_queued(framework: Json) -> bool:
    return QUEUE_LABEL in (framework["metadata"].get("labels") or {})


def why_not_served(framework: Json, services: Mapping[str, Json]) -> str | None:
    """None if a Framework with a running attempt has the objects for its host names, else the missing one."""
    spec, status = framework["spec"], framework["status"]
    network, metadata = spec.get("network"), framework["metadata"]
    if network is None or not network.get("enableDNSHostnames", True) or spec.get("suspend"):
        return None
    if status["state"] not in ("AttemptPreparing", "AttemptRunning"):
        return None
    found = services.get(network.get("subdomain") or metadata["name"])
    owners = [] if found is None else [one["uid"] for one in found["metadata"].get("ownerReferences") or ()]
    return None if metadata["uid"] in owners else "its Service is not there"


def why_claims_differ(framework: Json, claims: Mapping[str, Json], touched: Collection[str]) -> str | None:
    """None if a Framework with a running attempt has exactly the claims that its policies want.

    ``touched``: names of claims that a user has deleted or made invisible.
    """
    spec, status, uid = framework["spec"], framework["status"], framework["metadata"]["uid"]
    if spec.get("suspend") or status["state"] not in ("AttemptPreparing", "AttemptRunning"):
        return None
    framework_name, wanted = framework["metadata"]["name"], set()
    for role in spec["taskRoles"]:
        policy = role.get("persistentVolumeClaimRetentionPolicy") or {}
        for template in role.get("volumeClaimTemplates") or ():
            for index in range(role.get("taskNumber", 1)):
                name = names.claim_name(template["metadata"]["name"], framework_name, role["name"], index)
                wanted.add(name)
                if name in touched or not _has_begun(status, role["name"], index):
                    continue
                if name not in claims:
                    return f"its claim {name} is not there"
                metadata = claims[name]["metadata"]
                marks = metadata.get("annotations") or {}
                owned = [one["uid"] for one in metadata.get("ownerReferences") or ()] == [uid]
                if marks.get(names.FRAMEWORK_UID) != uid:
                    return f"its claim {name} is not its own"
                if owned != (policy.get("whenDeleted", "Retain") == "Delete"):
                    return f"its claim {name} has {'an' if owned else 'no'} owner"
                if marks.get(names.WHEN_SCALED) != policy.get("whenScaled", "Retain"):
                    return f"its claim {name} says another whenScaled"
    if not any(role.get("volumeClaimTemplates") for role in spec["taskRoles"]):
        # A controller that was started since then knows of no claims (docs/guarantees.md, Limits).
        return None
    for name, body in claims.items():
        marks = body["metadata"].get("annotations") or {}
        is_to_go = marks.get(names.FRAMEWORK_UID) == uid and marks.get(names.WHEN_SCALED) == "Delete"
        if is_to_go and name not in wanted and name not in touched:
            return f"its claim {name} was to be deleted"
    return None


def _has_begun(status: Json, role_name: str, index: int) -> bool:
    """Whether the Task runs."""
    roles = status["attemptStatus"]["taskRoleStatuses"]
    tasks = [task for role in roles if role["name"] == role_name for task in role["taskStatuses"]]
    return any(task["index"] == index and task["state"] == "AttemptRunning" for task in tasks)


def _why_attempt_not_at_end(spec: Json, status: Json, pods: Mapping[str, Json]) -> str | None:
    found = {role["name"]: role["taskStatuses"] for role in status["attemptStatus"]["taskRoleStatuses"]}
    started = {role["name"]: role.get("started") for role in status["attemptStatus"]["taskRoleStatuses"]}
    wanted = {role["name"]: role for role in spec["taskRoles"]}
    if set(found) != set(wanted):
        return f"its TaskRoles are {sorted(found)}"
    left = 0
    for name, role in wanted.items():
        tasks = found[name]
        if len(tasks) != role["taskNumber"] or any(task["deletionPending"] for task in tasks):
            return f"{name} has {len(tasks)} Tasks, some of them to be deleted"
        ended = [task for task in tasks if task["state"] == "Completed"]
        for task in ended:
            completion = task["attemptStatus"]["completionStatus"]
            rule = completion.get("policy") or {}
            if rule.get("action") in ("RestartFramework", "FailFramework"):
                return f"{name}[{task['index']}] failed by a rule that ends the attempt"
            if _is_due(role["task"], task["retryPolicyStatus"], completion):
                return f"{name}[{task['index']}] is Completed with {completion['code']}, and was to be retried"
        good = sum(task["attemptStatus"]["completionStatus"]["type"]["name"] == "Succeeded" for task in ended)
        limits = role["frameworkAttemptCompletionPolicy"]
        if 1 <= limits["minFailedTaskCount"] <= len(ended) - good:
            return f"enough Tasks of {name} have failed"
        if 1 <= limits["minSucceededTaskCount"] <= good:
            return f"enough Tasks of {name} have succeeded"
        left += len(tasks) - len(ended)
        if role.get("dependsOn") and not started.get(name):
            if why := _why_not_waiting(role, wanted, found):
                return why
            continue
        for task in tasks:
            if _waits_for_quota(task, tasks, status.get("admission"), name):
                continue
            pod = pods.get(task["attemptStatus"]["podUID"])
            if task["state"] != "Completed" and (task["state"] != "AttemptRunning" or not _runs_for_ever(pod)):
                return f"{name}[{task['index']}] is {task['state']}"
    if left and left == sum(_count_waiting(found[name], status.get("admission"), name) for name in wanted):
        return "only Tasks are left that wait for quota"
    total = sum(role["taskNumber"] for role in wanted.values())
    return "all Tasks are completed" if total and not left else None


def _waits_for_quota(task: Json, tasks: list[Json], admission: Json | None, role: str) -> bool:
    """Whether a Task was added since the admission, which the other Tasks of its role use up."""
    if admission is None or task["state"] != "AttemptCreationPending":
        return False
    admitted = {one["name"]: one["count"] - one.get("reclaimed", 0) for one in admission["podSets"]}.get(role, 0)
    using = [one for one in tasks if one["state"] not in ("AttemptCreationPending", "Completed")]
    return bool(len(using) >= admitted)


def _count_waiting(tasks: list[Json], admission: Json | None, role: str) -> int:
    return sum(_waits_for_quota(task, tasks, admission, role) for task in tasks)


def _why_not_waiting(role: Json, wanted: Mapping[str, Json], found: Mapping[str, list[Json]]) -> str | None:
    """None if a role that has not started waits for another one, else the next expected event."""
    holds = True
    for dependency in role["dependsOn"]:
        tasks = found[dependency["name"]]
        ended = [task for task in tasks if task["state"] == "Completed"]
        good = sum(task["attemptStatus"]["completionStatus"]["type"]["name"] == "Succeeded" for task in ended)
        if dependency["status"] == "Complete":
            if good < len(ended) and role["taskNumber"]:
                return f"{role['name']} waits for {dependency['name']}, which has failed"
            holds &= good == len(tasks) == wanted[dependency["name"]]["taskNumber"]
        else:
            # A simulated Pod is ready as soon as it runs.
            holds &= all(task["state"] in ("AttemptRunning", "Completed") for task in tasks)
    return f"{role['name']} has not started, and its dependencies hold" if holds else None


def _is_due(owner: Json, retries: Json, completion: Json) -> bool:
    """Rules 1 to 3 of Retry. A Framework's completion has a trigger, a Task's has none."""
    policy = {"fancyRetryPolicy": False, "maxRetryCount": 0, **(owner.get("retryPolicy") or {})}
    failed = completion["type"]["name"] == "Failed"
    attributes = completion["type"]["attributes"] or []
    if completion["code"] in _NEVER_RETRIED:
        return False
    if completion["code"] in _ALWAYS_RETRIED:
        return True
    action = (completion.get("policy") or {}).get("action", "Count")
    if action in ("Ignore", "FailTask", "FailFramework"):
        return bool(action == "Ignore")
    if action == "RestartFramework" and "trigger" not in completion:
        return False
    if policy["fancyRetryPolicy"] and failed and "Transient" in attributes:
        return True
    if policy["fancyRetryPolicy"] and failed and "Permanent" in attributes:
        return False
    limit = policy["maxRetryCount"]
    return bool(limit == -2 or (failed and (limit == -1 or retries["accountableRetriedCount"] < limit)))


def _moves_for_ever(spec: Json) -> bool:
    """Whether some policy may retry without end."""
    owners = [spec, *(role["task"] for role in spec["taskRoles"])]
    policies = [owner.get("retryPolicy") or {} for owner in owners]
    rules = [rule for owner in owners for rule in (owner.get("podFailurePolicy") or {}).get("rules") or ()]
    return any(policy.get("fancyRetryPolicy") or policy.get("maxRetryCount", 0) < 0 for policy in policies) or any(
        rule["action"] == "Ignore" for rule in rules
    )


def _progress(status: Json) -> tuple[int, int]:
    """How often it was retried: as Framework, and its Tasks since."""
    tasks = [task for role in status["attemptStatus"]["taskRoleStatuses"] for task in role["taskStatuses"]]
    return (
        status["retryPolicyStatus"]["totalRetriedCount"],
        sum(task["retryPolicyStatus"]["totalRetriedCount"] for task in tasks),
    )


def _runs_for_ever(pod: Json | None) -> bool:
    """Whether the Pod exists, is well, and runs without end."""
    if pod is None or pod["status"]["phase"] != "Running" or "deletionTimestamp" in pod["metadata"]:
        return False
    annotations = pod["metadata"].get("annotations") or {}
    return "forever" in annotations.get(PREFIX + "run-seconds", "forever")
