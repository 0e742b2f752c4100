"""A story: acts of users, nodes, networks, clocks and killers on some Frameworks, all made from one seed.

A story is data: a list of steps, each with the moment at which it is taken. So it can be printed, played again, and
shortened by leaving steps out. `tests.chaos.player` carries out the steps.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from frameworkcontroller.api import names
from frameworkcontroller.controller.driver import MAX_IN_FLIGHT
from frameworkcontroller.local.queues.setup import LOCAL_QUEUE, PRIORITIES
from tests.chaos.oddities import MAX_EXEC_LABEL, odd_template
from tests.chaos.proxy import Fault, Kind
from tests.support.frameworks import Json, policy, role
from tests.support.historysink import SinkFault, Trouble
from tests.support.queueguarantees import QUEUE_LABEL

PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"
OWNER: Final = "stays"
"""The name of a ConfigMap that is there from the beginning to the end."""
NAMES: Final = ("f0", "f1", "f2")
ROLES: Final = ("a", "b", "c")
LENGTH: Final = 120.0
"""Seconds in which a story takes its steps; then comes its fair end."""

RETAIN_SEC: Final = 2592000

_CROWDS: Final = 5
"""Every so many-th story on a virtual clock is about a crowd of Tasks."""
_CROWD_LENGTH: Final = 45.0
"""About as long as it takes to create them."""
_NETWORKED: Final = 0.4
"""The share of Frameworks that have a network, on a virtual clock."""
_CLAIMED: Final = 0.3
"""The share of Frameworks that have volume claims, on a virtual clock."""
CLAIM_SPEC: Final[Json] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
_QUEUED: Final = 0.25
"""The share of the stories with queues, on a virtual clock."""
_GANGED: Final = 0.2
"""The share of those with gangs."""
_ARCHIVED: Final = 0.35
"""The share of the stories with an archive of the history."""
_ODD: Final = 0.4
"""The share of the stories in which users write odd content."""
_RIVALS: Final = 0.15
"""The share of the other stories in which a slow controller works beside a second one."""

_BACKOFFS: Final[tuple[Json, ...]] = (
    {"baseSeconds": 0, "maxSeconds": 0},
    {"baseSeconds": 1, "maxSeconds": 8},
    {"baseSeconds": 20, "maxSeconds": 60},
)
_VERBS: Final = ("create", "create", "patch", "patch", "delete", "get", "list", "")
_RESOURCES: Final = ("pods", "configmaps", "frameworks", "")
_CODES: Final = ("0", "0", "1", "200, 0", "201, 0", "210", "1, 0", "200, 210", "0, 1", "137")


@dataclass(frozen=True)
class Step:
    """One thing that happens. ``at``: seconds since the beginning."""

    at: float
    act: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        said = ", ".join(str(item) for item in self.args)
        return f"{self.at:7.1f}s  {self.act.replace('_', ' ')}{': ' * bool(said)}{said}"


@dataclass(frozen=True)
class Story:
    """What happens, in the order of time."""

    seed: int
    steps: tuple[Step, ...]
    in_flight: int = MAX_IN_FLIGHT
    """Requests that a controller has in flight at most."""
    retain_sec: int = RETAIN_SEC
    """The controllers' ``frameworkCompletedRetainSec``."""
    quota: int | None = None
    """Processors of the queue, of which each Pod requests one; None without queues."""
    gangs: bool = False
    """Whether PodGroups are served, and scheduled as such."""
    history: str | None = None
    """The controllers' ``history.onUnavailable``; None: they send their history nowhere."""
    compress: bool = False
    """The controllers' ``largeFrameworkCompression``."""
    broken_end: bool = False
    """Whether each Framework gets an invalid spec before it is told to stop in the end."""

    @property
    def has_network(self) -> bool:
        """Whether some Framework has host names."""
        specs = (step.args[2] for step in self.steps if step.act == "create")
        networks = (spec["network"] for spec in specs if spec.get("network") is not None)
        return any(network.get("enableDNSHostnames", True) for network in networks)

    @property
    def has_claims(self) -> bool:
        """Whether some role has volume claims."""
        roles = [role for step in self.steps if step.act == "create" for role in step.args[1]]
        roles += [step.args[1] for step in self.steps if step.act == "add_role"]
        return any(role.get("volumeClaimTemplates") for role in roles)

    def without(self, dropped: Iterable[int]) -> "Story":
        """The story without the steps at these positions."""
        gone = set(dropped)
        return replace(self, steps=tuple(step for at, step in enumerate(self.steps) if at not in gone))

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}:", *map(str, self.steps)])


def make_story(seed: int, *, length: float = LENGTH, virtual: bool = True, odd: bool = True) -> Story:
    """The story of that seed.

    ``virtual`` False leaves out the steps that need a controller in this process. ``odd`` False leaves out odd content.
    """
    story = _make_story(seed, length, virtual=virtual)
    return (
        _about_oddities(story, _CROWD_LENGTH if seed % _CROWDS == _CROWDS - 1 else length) if virtual and odd else story
    )


def _make_story(seed: int, length: float, *, virtual: bool) -> Story:
    if virtual and seed % _CROWDS == _CROWDS - 1:
        crowd = make_crowd(seed)
        edits = [_life_edit(random.Random(f"{seed} life"), _CROWD_LENGTH, NAMES[:1])]
        steps = _about_network(random.Random(f"{seed} network"), [*crowd.steps, *edits], _CROWD_LENGTH)
        steps = _about_claims(random.Random(f"{seed} claims"), steps, _CROWD_LENGTH)
        crowd = replace(crowd, steps=tuple(sorted(steps, key=lambda step: step.at)))
        return _about_history(crowd, _CROWD_LENGTH)
    rng = random.Random(seed)
    steps = [_create(rng, name, length) for name in NAMES[: rng.choice([1, 1, 2, 3])]]
    steps += [_users(rng, length) for _ in range(rng.randint(0, 6))]
    steps += [_others(rng, length) for _ in range(rng.randint(0, 4))]
    steps += [_killers(rng, length, virtual=virtual) for _ in range(rng.randint(0, 5))]
    steps += [_faults(rng, length) for _ in range(rng.randint(0, 16))]
    retain_sec = rng.choice([RETAIN_SEC, RETAIN_SEC, 0, round(length / 6), round(length)])
    if rng.random() < _RIVALS:
        steps += _rivals(rng, length)
    steps = [_about_nodes(random.Random(f"{seed} {at} nodes"), step, virtual) for at, step in enumerate(steps)]
    if virtual:
        steps = _about_life(random.Random(f"{seed} life"), steps, length)
        steps = _about_network(random.Random(f"{seed} network"), steps, length)
        steps = _about_claims(random.Random(f"{seed} claims"), steps, length)
        steps = _about_owners(random.Random(f"{seed} owners"), steps)
    story = Story(seed, tuple(sorted(steps, key=lambda step: step.at)), retain_sec=retain_sec)
    return _about_history(_about_gangs(_about_queues(story, length)) if virtual else story, length)


def _about_owners(rng: random.Random, steps: list[Step]) -> list[Step]:
    """The templates of some roles name an owner that outlives every attempt."""
    return [
        replace(step, args=(step.args[0], [_perhaps_owned(rng, one) for one in step.args[1]], *step.args[2:]))
        if step.act == "create"
        else step
        for step in steps
    ]


def _perhaps_owned(rng: random.Random, item: Json) -> Json:
    return with_owner(item) if rng.random() < 0.2 else item


def with_owner(item: Json) -> Json:
    """The role with an owner in its template, whose UID the player sets."""
    pod = item["task"]["pod"]
    metadata = {**pod["metadata"], "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": OWNER}]}
    return item | {"task": {**item["task"], "pod": {**pod, "metadata": metadata}}}


def _about_nodes(rng: random.Random, step: Step, virtual: bool) -> Step:
    """Some Pods are to be deleted by force only from lost nodes, and some lost nodes are found to be lost."""
    force = rng.choice([None, "NodeUnreachable"])
    match step:
        case Step(act="create", args=(name, roles, spec)):
            return replace(step, args=(name, [_forced(role, rng) for role in roles], spec))
        case Step(act="add_role", args=(name, role)):
            return replace(step, args=(name, _forced(role, rng)))
        case Step(act="set_timeout"):
            return replace(step, args=(*step.args, force))
        case Step(act="lose_node", args=(seconds,)) if virtual:
            return replace(step, args=(seconds, rng.choice([None, 0.0, round(seconds / 2, 1)])))
    return step


def _forced(role: Json, rng: random.Random) -> Json:
    task = role["task"]
    if "podGracefulDeletionTimeoutSec" not in task or rng.random() < 0.5:
        return role
    return role | {"task": task | {"podForceDeletionPolicy": "NodeUnreachable"}}


def _about_life(rng: random.Random, steps: list[Step], length: float) -> list[Step]:
    """Some Frameworks have deadlines, back-offs and failure rules, or are suspended, and users change that."""
    lively = [_lively(rng, step) if step.act == "create" and rng.random() < 0.6 else step for step in steps]
    names = [step.args[0] for step in steps if step.act == "create"]
    return lively + [_life_edit(rng, length, names) for _ in range(rng.randint(0, 5))]


def _lively(rng: random.Random, create: Step) -> Step:
    name, roles, spec = create.args
    more = dict([_life_of_framework(rng)]) if rng.random() < 0.4 else {}
    more |= {"suspend": True} if rng.random() < 0.15 else {}
    backoff = {"backoff": rng.choice(_BACKOFFS)} if rng.random() < 0.3 else {}
    spec = spec | more | {"retryPolicy": spec["retryPolicy"] | backoff}
    return replace(create, args=(name, [_lively_role(rng, item) for item in roles], spec))


def _lively_role(rng: random.Random, item: Json) -> Json:
    task = dict(item["task"])
    for _ in range(rng.choice([0, 1, 1, 2])):
        task = with_life(task, dict([_life_of_task(rng)]))
    return item | {"task": task}


def with_life(task: Json, fields: Json) -> Json:
    """The task with these fields of its life."""
    fields = dict(fields)
    if "retryPolicy" in fields:
        # Only its back-off: the oracle knows one policy of retries.
        fields["retryPolicy"] = task.get("retryPolicy", {}) | fields["retryPolicy"]
    simulate = task["pod"]["metadata"]["annotations"]
    prepares = float(simulate.get("sim.frameworkcontroller.dev/prepare-seconds", 0))
    if prepares > 1 and fields.get("preRunningDeadlineSeconds"):
        # Its retries may have no end: those for which it never runs would be one a second.
        fields["preRunningDeadlineSeconds"] = round(prepares) + 30
    return task | fields


def _life_of_framework(rng: random.Random) -> tuple[str, Any]:
    match rng.choice(["deadline", "deadline", "ttl"]):
        case "deadline":
            return "activeDeadlineSeconds", rng.choice([5, 40, 40, 150, 600])
        case _:
            return "ttlSecondsAfterFinished", rng.choice([0, 10, 100])


def _life_of_task(rng: random.Random) -> tuple[str, Any]:
    match rng.choice(["rules", "rules", "rules", "deadline", "backoff"]):
        case "rules":
            return "podFailurePolicy", {"rules": [_rule(rng) for _ in range(rng.randint(1, 3))]}
        case "deadline":
            return "preRunningDeadlineSeconds", rng.choice([1, 5, 30])
        case _:
            return "retryPolicy", {"backoff": rng.choice(_BACKOFFS)}


def _rule(rng: random.Random) -> Json:
    action = rng.choice(["Count", "Ignore", "Ignore", "FailTask", "RestartFramework", "FailFramework"])
    codes = {"operator": rng.choice(["In", "In", "NotIn"]), "values": rng.choice([[1], [137], [1, 200], [210]])}
    pattern: Json = rng.choice(
        [
            {"onExitCodes": codes},
            {"onExitCodes": codes},
            {"onCompletionCodes": {"operator": "In", "values": rng.choice([[-101], [-260], [-300, 137], [-1010]])}},
            {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        ]
    )
    return {"action": action, **pattern}


def _life_edit(rng: random.Random, length: float, names: list[str] | tuple[str, ...]) -> Step:
    name, at = rng.choice(names), _at(rng, length)
    match rng.choice(["evict", "suspend", "suspend", "framework", "framework", "task", "task"]):
        case "suspend":
            return Step(at, "set_spec", (name, {"suspend": rng.random() < 0.6}))
        case "evict":
            return Step(at, "evict", (rng.randint(0, 9),))
        case "framework":
            field, value = _life_of_framework(rng)
            return Step(at, "set_spec", (name, {field: rng.choice([value, value, None])}))
        case _:
            field, value = _life_of_task(rng)
            value = value if field == "retryPolicy" else rng.choice([value, value, None])
            return Step(at, "set_task", (name, rng.choice(ROLES), {field: value}))


def _about_network(rng: random.Random, steps: list[Step], length: float) -> list[Step]:
    """Some Frameworks have host names, and others delete their Services, take the names, or the permissions."""
    changed = [_networked(rng, step) if step.act == "create" and rng.random() < _NETWORKED else step for step in steps]
    services = [
        step.args[2]["network"].get("subdomain") or step.args[0]
        for step in changed
        if step.act == "create" and "network" in step.args[2]
    ]
    if services:
        changed += [_network_step(rng, length, rng.choice(services)) for _ in range(rng.randint(0, 5))]
    return changed


def _networked(rng: random.Random, create: Step) -> Step:
    name, roles, spec = create.args
    subdomain = {"subdomain": f"{name}-net"} if rng.random() < 0.4 else {}
    more: Json = {"network": {"enableDNSHostnames": rng.random() < 0.9, **subdomain}}
    if roles[0].get("taskNumber", 1) and rng.random() < 0.5:
        more["coordinator"] = {"taskRole": roles[0]["name"], "taskIndex": 0}
    args = [f"{{{{{word}}}}}" for word in names.NETWORK_PLACEHOLDERS if word != names.COORDINATOR_HOST]
    for item in roles:
        item["task"]["pod"]["spec"]["containers"][0]["args"] = args
    return replace(create, args=(name, roles, spec | more))


def _network_step(rng: random.Random, length: float, service: str) -> Step:
    at, seconds = _at(rng, length), round(rng.choice([1, 10, 60]) * length / LENGTH, 1)
    match rng.choice(
        ["delete", "delete", "always", "take", "take", "unlabel", "deny", "deny", "fault", "fault", "fault"]
    ):
        case "delete":
            return Step(at, "delete_service", (service,))
        case "always":
            return Step(at, "delete_service_always", (service, 0.1, min(seconds, 20.0)))
        case "take":
            # Mostly before the Framework is there.
            return Step(rng.choice([0.0, at]), "take_service", (service, rng.random() < 0.5, seconds))
        case "unlabel":
            return Step(at, "unlabel_service", (service,))
        case "deny":
            verbs = rng.choice(
                [("list", "watch"), ("create",), ("watch",), ("get",), ("get", "list", "watch", "create")]
            )
            return Step(rng.choice([0.0, at]), "deny", ("services", verbs, seconds))
        case _:
            kind = rng.choice([kind for kind in Kind if kind is not Kind.LATE])
            verb = {Kind.STALE: "list", Kind.EXPIRED: "watch"}.get(
                kind, rng.choice(("create", "create", "list", "get", ""))
            )
            return Step(
                rng.choice([0.0, at]), "fault", (Fault(kind, verb, "services", rng.choice([1, 1, 2, 5]), seconds),)
            )


def _about_claims(rng: random.Random, steps: list[Step], length: float) -> list[Step]:
    """Some roles have volume claims, and others delete these, take the names, or the permissions."""
    claimed = {name: [item for item in ROLES if rng.random() < 0.7] for name in NAMES if rng.random() < _CLAIMED}
    changed = [_claiming(rng, step, claimed) for step in steps]
    created = [step.args for step in changed if step.act == "create"]
    found = [
        (name, item["name"]) for name, roles, _ in created for item in roles if item["name"] in claimed.get(name, ())
    ]
    if found:
        changed += [_claim_step(rng, length, *rng.choice(found)) for _ in range(rng.randint(0, 6))]
    return changed


def _claiming(rng: random.Random, step: Step, claimed: dict[str, list[str]]) -> Step:
    """The step with claims in its roles: always in the same ones, as templates are immutable."""
    match step:
        case Step(act="create", args=(name, roles, spec)) if name in claimed:
            return replace(step, args=(name, [_claiming_role(rng, item, claimed[name]) for item in roles], spec))
        case Step(act="add_role", args=(name, item)) if name in claimed:
            return replace(step, args=(name, _claiming_role(rng, item, claimed[name])))
    return step


def _claiming_role(rng: random.Random, item: Json, claimed: list[str]) -> Json:
    if item["name"] not in claimed:
        return item
    template = {"metadata": {"name": "data"}, "spec": CLAIM_SPEC}
    return item | {"volumeClaimTemplates": [template], "persistentVolumeClaimRetentionPolicy": _retention(rng)}


def _retention(rng: random.Random) -> Json:
    return {field: rng.choice(["Retain", "Delete"]) for field in ("whenDeleted", "whenScaled")}


def _claim_step(rng: random.Random, length: float, name: str, item: str) -> Step:
    at, seconds = _at(rng, length), round(rng.choice([1, 10, 60]) * length / LENGTH, 1)
    acts = [
        "delete",
        "take",
        "take",
        "unlabel",
        "policy",
        "policy",
        "rescale",
        "rescale",
        "deny",
        "fault",
        "fault",
        "fault",
    ]
    match rng.choice(acts):
        case "delete":
            return Step(at, "delete_claim", (rng.randint(0, 9),))
        case "unlabel":
            return Step(at, "unlabel_claim", (rng.randint(0, 9),))
        case "take":
            labels = {names.FRAMEWORK_NAME: name} if rng.random() < 0.5 else {}
            taken = names.claim_name("data", name, item, rng.choice([0, 0, 1, 2]))
            return Step(rng.choice([0.0, at]), "take_claim", (taken, labels, {}, seconds))
        case "policy":
            return Step(at, "set_retention", (name, item, _retention(rng)))
        case "rescale":
            return Step(at, "rescale", (name, item, rng.randint(0, 5)))
        case "deny":
            verbs = rng.choice(
                [("list", "watch"), ("create",), ("patch", "delete"), ("get",), ("get", "list", "watch")]
            )
            return Step(rng.choice([0.0, at]), "deny", ("persistentvolumeclaims", verbs, seconds))
        case _:
            kind = rng.choice([kind for kind in Kind if kind is not Kind.LATE])
            verb = rng.choice(("create", "create", "patch", "delete", "list", "get", ""))
            verb = {Kind.STALE: "list", Kind.EXPIRED: "watch"}.get(kind, verb)
            fault = Fault(kind, verb, "persistentvolumeclaims", rng.choice([1, 1, 2, 5]), seconds)
            return Step(rng.choice([0.0, at]), "fault", (fault,))


def _about_queues(story: Story, length: float) -> Story:
    """In some stories Frameworks are in a queue that lets only some of them run, and others meddle with Workloads."""
    rng = random.Random(f"{story.seed} queues")
    if rng.random() >= _QUEUED:
        return story
    steps = [_queued(rng, step) for step in story.steps]
    creates = [step for step in steps if step.act == "create"]
    wanted = [sum(item.get("taskNumber", 1) for item in step.args[1]) for step in creates]
    quota = max(1, *wanted, round(sum(wanted) * rng.choice([0.5, 0.7, 1.0])))
    steps += [_queue_step(rng, length, rng.choice(creates).args[0], quota) for _ in range(rng.randint(1, 7))]
    return replace(story, steps=tuple(sorted(steps, key=lambda step: step.at)), quota=quota)


def _queued(rng: random.Random, step: Step) -> Step:
    match step:
        case Step(act="create", args=(name, roles, spec)):
            labels = {QUEUE_LABEL: LOCAL_QUEUE} if rng.random() < 0.9 else {}
            if rng.random() < 0.7:
                labels[PRIORITY_LABEL] = rng.choice(list(PRIORITIES))
            more = {"metadata": {"labels": labels}}
            return replace(step, args=(name, [_requesting(item) for item in roles], spec | more))
        case Step(act="add_role", args=(name, item)):
            return replace(step, args=(name, _requesting(item)))
    return step


def _requesting(item: Json) -> Json:
    """The role with one processor for each of its Pods."""
    item["task"]["pod"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    return item


def _queue_step(rng: random.Random, length: float, name: str, quota: int) -> Step:
    at, seconds = _at(rng, length), round(rng.choice([1, 10, 60]) * length / LENGTH, 1)
    acts = ["deactivate", "deactivate", "delete", "delete", "unlabel", "priority", "priority", "quota", "deny"]
    match rng.choice([*acts, "fault", "fault", "fault"]):
        case "deactivate":
            return Step(at, "deactivate_workload", (rng.randint(0, 9), seconds))
        case "delete":
            return Step(at, "delete_workload", (rng.randint(0, 9),))
        case "unlabel":
            return Step(at, "set_label", (name, QUEUE_LABEL, rng.choice([None, None, LOCAL_QUEUE])))
        case "priority":
            return Step(at, "set_label", (name, PRIORITY_LABEL, rng.choice([*PRIORITIES, None])))
        case "quota":
            return Step(at, "set_quota", (rng.randint(0, 2 * quota),))
        case "deny":
            verbs = rng.choice([("list", "watch"), ("create",), ("patch",), ("get",), ("get", "list", "watch")])
            return Step(rng.choice([0.0, at]), "deny", ("workloads", verbs, seconds))
        case _:
            kind = rng.choice([kind for kind in Kind if kind is not Kind.LATE])
            verb = rng.choice(("create", "patch", "patch", "list", "get", "get", ""))
            verb = {Kind.STALE: "list", Kind.EXPIRED: "watch"}.get(kind, verb)
            return Step(at, "fault", (Fault(kind, verb, "workloads", rng.choice([1, 1, 2, 5]), seconds),))


def _about_gangs(story: Story) -> Story:
    """In some stories Frameworks are gangs."""
    rng = random.Random(f"{story.seed} gangs")
    if rng.random() >= _GANGED:
        return story
    return replace(story, steps=tuple(_ganged(rng, step) for step in story.steps), gangs=True)


def _ganged(rng: random.Random, step: Step) -> Step:
    if step.act != "create" or rng.random() < 0.2:
        return step
    name, roles, spec = step.args
    chosen: Json = rng.choice([{"gang": {}}, {"gang": {}}, {"gang": {"minCount": rng.randint(1, 4)}}, {"basic": {}}])
    return replace(step, args=(name, roles, spec | {"scheduling": {"schedulingPolicy": chosen}}))


def _about_history(story: Story, length: float) -> Story:
    """In some stories no attempt is forgotten before an archive has it, which fails at times."""
    rng = random.Random(f"{story.seed} history")
    if rng.random() >= _ARCHIVED:
        return story
    blocks = rng.random() < 0.9
    names = [step.args[0] for step in story.steps if step.act == "create"]
    steps = [_orphaning(rng, step) if blocks else step for step in story.steps]
    steps += [_history_step(rng, length, rng.choice(names)) for _ in range(rng.randint(0, 8))]
    if rng.random() < 0.2:
        # As with their namespace: at once, and mostly while the archive is away.
        at = round(rng.uniform(0.1, 1) * length, 1)
        steps.append(Step(at, "delete_all", (rng.choice(["Background", "Background", "Foreground"]),)))
        if rng.random() < 0.7:
            steps.append(Step(max(0.0, at - 5), "stop_sink", (round(rng.choice([10, 100]) * length / LENGTH, 1),)))
    return replace(story, steps=tuple(sorted(steps, key=lambda step: step.at)), history="Block" if blocks else "Drop")


def _about_oddities(story: Story, length: float) -> Story:
    """In some stories users write templates of odd shape, invalid specs, Frameworks without roles, and more."""
    rng = random.Random(f"{story.seed} oddities")
    if rng.random() >= _ODD:
        return story
    steps: list[Step] = []
    for step in story.steps:
        steps += _odd(rng, step, length, story)
    created = [step.args[0] for step in steps if step.act == "create"]
    for _ in range(rng.randint(0, 4)):
        steps.append(Step(_at(rng, length), "break_spec", (rng.choice(created), rng.random(), _seconds(rng, length))))
    if story.quota is not None and rng.random() < 0.4:
        labels = rng.choice(["5", "40", "1000000", "abc", None])
        steps.append(Step(_at(rng, length), "set_label", (rng.choice(created), MAX_EXEC_LABEL, labels)))
    steps.sort(key=lambda step: step.at)
    return replace(story, steps=tuple(steps), compress=rng.random() < 0.3, broken_end=rng.random() < 0.3)


def _odd(rng: random.Random, step: Step, length: float, story: Story) -> list[Step]:
    """The step, with odd content in some of its templates. Some roles come later than their Framework."""
    match step:
        case Step(act="add_role", args=(name, item)):
            return [replace(step, args=(name, _odd_role(rng, item, endless=True)))]
        case Step(act="create", args=(name, roles, spec)):
            roles = [_odd_role(rng, item, endless=_is_endless(spec)) for item in roles]
            spec = _odd_scheduling(rng, spec) if story.gangs else spec
            if rng.random() >= 0.15:
                return [replace(step, args=(name, roles, spec))]
            late = [Step(step.at + _seconds(rng, length), "add_role", (name, item)) for item in roles]
            spec = {field: value for field, value in spec.items() if field != "coordinator"}
            return [replace(step, args=(name, [], spec)), *late]
    return [step]


def _odd_role(rng: random.Random, item: Json, *, endless: bool) -> Json:
    if rng.random() < 0.5:
        return item
    task = item["task"]
    # Without end, refused Pods would be retried without a pause.
    fails = not endless and not _is_endless(task) and "Ignore" not in str(task.get("podFailurePolicy"))
    return item | {"task": task | {"pod": odd_template(rng, task["pod"], fails=fails)}}


def _odd_scheduling(rng: random.Random, spec: Json) -> Json:
    scheduling = spec.get("scheduling")
    if scheduling is None:
        return spec
    more: Json = {"disruptionMode": rng.choice([{"single": {}}, {"all": {}}])} if rng.random() < 0.5 else {}
    if rng.random() < 0.5:
        more["schedulingConstraints"] = {"topology": [{"key": "topology.kubernetes.io/zone"}]}
    return spec | {"scheduling": scheduling | more}


def _seconds(rng: random.Random, length: float) -> float:
    return round(rng.choice([1, 10, 60]) * length / LENGTH, 1)


def _orphaning(rng: random.Random, step: Step) -> Step:
    """Some deletions are to leave the dependents."""
    if step.act == "delete" and rng.random() < 0.3:
        return replace(step, args=(step.args[0], "Orphan"))
    return step


def _history_step(rng: random.Random, length: float, name: str) -> Step:
    at, seconds = _at(rng, length), round(rng.choice([2, 20, 90, 200]) * length / LENGTH, 1)
    acts = ["trouble"] * 6 + ["stop"] * 3 + ["refuse", "delete", "delete", "hold", "hold", "give_up"]
    match rng.choice(acts):
        case "trouble":
            kind = rng.choice(list(SinkFault))
            wait = min(seconds, 60.0) if kind in (SinkFault.UNAVAILABLE, SinkFault.THROTTLED) else seconds
            return Step(at, "trouble_sink", (Trouble(kind, rng.choice([1, 1, 2, 6]), wait),))
        case "stop":
            return Step(rng.choice([0.0, at]), "stop_sink", (seconds,))
        case "refuse":
            return Step(at, "refuse_records", (rng.randint(0, 3), seconds))
        case "delete":
            return Step(at, "delete", (name, rng.choice(["Background", "Background", "Foreground", "Orphan"])))
        case "hold":
            return Step(at, "hold", (name, rng.random() < 0.5, seconds))
        case _:
            return Step(at, "give_history_up", (name,))


def _rivals(rng: random.Random, length: float) -> list[Step]:
    """Two controllers at once: the first one's creations are slow, and its watches may lag."""
    at = round(rng.choice([0.5, 1.5, rng.uniform(0, 20)]) * length / LENGTH, 1)
    seconds = rng.choice([5.0, 20.0, 50.0])
    resource = rng.choice(["pods", "pods", "pods", "configmaps"])
    faults = [Fault(Kind.FAILED, "create", resource, rng.randint(1, 3))] if rng.random() < 0.5 else []
    faults.append(Fault(Kind.DELAY, "create", resource, rng.choice([1, 2, 5]), round(seconds * length / LENGTH, 2)))
    if rng.random() < 0.7:
        blind = rng.choice([resource, ""])
        faults.append(Fault(Kind.HELD, "", blind, 1, round(2 * seconds * length / LENGTH, 2)))
    second = Step(at, "second_controller", (max(5.0, 2 * seconds * length / LENGTH),))
    return [second, *(Step(at, "fault", (fault,)) for fault in faults)]


def make_crowd(seed: int) -> Story:
    """A Framework of dozens of Tasks, few requests at once, and an API server that takes seconds for each.

    So one batch of creations or deletions takes most of the story, and everything else happens meanwhile.
    """
    rng = random.Random(seed)
    roles = [_crowd(rng, item) for item in ROLES[: rng.choice([1, 2, 3])]]
    steps = [Step(0.0, "create", (NAMES[0], roles, {"retryPolicy": _retry(rng, endless=0.0)}))]
    steps.append(Step(0.0, "slow_down", ("pods", *rng.choice([(0.0, 3.0), (3.0, 0.0), (1.0, 1.0), (1.0, 6.0)]))))
    steps.append(Step(0.0, "slow_down", ("frameworks", *rng.choice([(0.0, 0.0), (0.5, 0.5), (0.0, 8.0), (4.0, 1.0)]))))
    steps += [_crowd_user(rng) for _ in range(rng.randint(0, 4))]
    steps += [_others(rng, _CROWD_LENGTH) for _ in range(rng.randint(0, 6))]
    steps += [_killers(rng, _CROWD_LENGTH, virtual=True) for _ in range(rng.choice([0, 0, 1, 2]))]
    steps += [_crowd_fault(rng) for _ in range(rng.randint(0, 8))]
    return Story(seed, tuple(sorted(steps, key=lambda step: step.at)), in_flight=rng.choice([2, 4, 8]))


def _crowd(rng: random.Random, name: str) -> Json:
    simulate = {
        "run-seconds": rng.choice(["forever", "forever", "8", "2, forever", "2"]),
        "exit-code": rng.choice(["0", "0", "1", "1, 0"]),
        "stop-seconds": rng.choice(["0", "2"]),
    }
    task = {"retryPolicy": {"fancyRetryPolicy": False, "maxRetryCount": rng.choice([0, 1, 2])}}
    ends = rng.choice([policy(), policy(), policy(15), policy(-1, 15), policy(1)])
    return role(name, rng.randint(5, 20), simulate=simulate, task=task, frameworkAttemptCompletionPolicy=ends)


def _crowd_user(rng: random.Random) -> Step:
    name, item, at = NAMES[0], rng.choice(ROLES), round(rng.uniform(1, _CROWD_LENGTH), 1)
    match rng.choice(["rescale"] * 6 + ["drop_role", "add_role", "stop", "delete", "set"]):
        case "rescale":
            return Step(at, "rescale", (name, item, rng.randint(0, 25)))
        case "drop_role":
            return Step(at, "drop_role", (name, item))
        case "add_role":
            return Step(at, "add_role", (name, _crowd(rng, item)))
        case "stop":
            return Step(at, "execute", (name, "Stop"))
        case "delete":
            return Step(at, "delete", (name, "Foreground"))
        case _:
            return Step(at, "set_completion", (name, item, policy(rng.choice([-1, 1, 10]), rng.choice([-1, 1, 10]))))


def _crowd_fault(rng: random.Random) -> Step:
    """Faults of actions and status writes."""
    kinds = [Kind.DROP, Kind.CUT, Kind.LOST, Kind.THROTTLED, Kind.FAILED, Kind.UNAVAILABLE, Kind.CONFLICT]
    kinds += [Kind.NO_BACKEND, Kind.LOGIN, Kind.BLOCKED]
    kind = rng.choice([*kinds * 2, Kind.DELAY, Kind.HELD, Kind.LATE])
    verb, resource = rng.choice([("create", "pods"), ("delete", "pods"), ("patch", "frameworks"), ("get", "")])
    seconds = rng.choice([1.0, 10.0, 40.0])
    fault = Fault(kind, "" if kind is Kind.HELD else verb, resource, rng.choice([1, 1, 3, 10]), seconds)
    return Step(round(rng.uniform(0, _CROWD_LENGTH), 1), "fault", (fault,))


def _at(rng: random.Random, length: float) -> float:
    # Most faults hurt while requests are in flight, which is early on.
    return round(rng.choice([rng.uniform(0, 10), rng.uniform(0, 30), rng.uniform(0, length)]) * length / LENGTH, 1)


def _create(rng: random.Random, name: str, length: float) -> Step:
    spec: Json = {"retryPolicy": _retry(rng, endless=0.15)}
    roles = [_role(rng, item, length, calm=_is_endless(spec)) for item in ROLES[: rng.choice([1, 1, 2, 3])]]
    if rng.random() < 0.1:
        spec["executionType"] = "Create"
    at = round(rng.uniform(0, 5) * length / LENGTH, 1)
    _put_in_order(random.Random(f"{name} {rng.getstate()[1][:4]}"), roles)
    return Step(at, "create", (name, roles, spec))


def _put_in_order(rng: random.Random, roles: list[Json]) -> None:
    """Let some roles wait for earlier ones. With an ``rng`` of its own, so that all else in a story stays as it was."""
    for position in range(1, len(roles)):
        if rng.random() < 0.3:
            other = rng.choice(roles[:position])["name"]
            roles[position]["dependsOn"] = [{"name": other, "status": rng.choice(["Ready", "Complete"])}]


def _role(rng: random.Random, name: str, length: float, *, calm: bool = False) -> Json:
    """A TaskRole; ``calm``: one whose Pods take their time, since there will be many of them."""
    simulate = {
        "run-seconds": rng.choice(["0", "0.5", "3", "1, 20", "forever", "forever"]),
        "exit-code": rng.choice(_CODES),
        "stop-seconds": rng.choice(["0", "0", "2"]),
        "prepare-seconds": rng.choice(["0", "1"]),
    }
    task: Json = {"retryPolicy": _retry(rng, endless=0.2)}
    if calm or _is_endless(task):
        simulate["prepare-seconds"] = str(round(length / 2, 1))
    if rng.random() < 0.3:
        task["podGracefulDeletionTimeoutSec"] = rng.choice([0, 5, 60])
    ends = rng.choice([policy(), policy(1), policy(-1, 1), policy(2, 2), policy(1, 1)])
    number = rng.choice([0, 1, 1, 2, 3, 4])
    return role(name, number, simulate=simulate, task=task, frameworkAttemptCompletionPolicy=ends)


def _retry(rng: random.Random, endless: float) -> Json:
    limit = rng.choice([-1, -2]) if rng.random() < endless else rng.choice([0, 0, 1, 2])
    return {"fancyRetryPolicy": rng.random() < 0.4, "maxRetryCount": limit}


def _is_endless(owner: Json) -> bool:
    policy = owner["retryPolicy"]
    return bool(policy["fancyRetryPolicy"] or policy["maxRetryCount"] < 0)


def _users(rng: random.Random, length: float) -> Step:
    name, item = rng.choice(NAMES), rng.choice(ROLES)
    args: tuple[Any, ...]
    acts = ["rescale", "rescale", "rescale", "drop_role", "add_role", "stop", "start", "delete", "timeout", "set"]
    match rng.choice(acts):
        case "rescale":
            act, args = "rescale", (name, item, rng.randint(0, 5))
        case "drop_role":
            act, args = "drop_role", (name, item)
        case "add_role":
            # Its Framework may be one that is always retried.
            act, args = "add_role", (name, _role(rng, item, length, calm=True))
        case "timeout":
            act, args = "set_timeout", (name, item, rng.choice([None, 0, 5]))
        case "stop":
            act, args = "execute", (name, "Stop")
        case "start":
            act, args = "execute", (name, "Start")
        case "delete":
            act, args = "delete", (name, rng.choice(["Foreground", "Foreground", "Background"]))
        case _:
            act, args = "set_completion", (name, item, policy(rng.choice([-1, 1, 2]), rng.choice([-1, 1, 2])))
    return Step(_at(rng, length), act, args)


def _others(rng: random.Random, length: float) -> Step:
    acts = ["fail_pod", "evict_pod", "delete_pod", "delete_pod", "delete_configmap", "lose_node", "annotate"]
    act = rng.choice([*acts, "take_name", "take_name", "unlabel"])
    args: tuple[Any, ...] = (rng.randint(0, 9),)
    if act == "fail_pod":
        args = (rng.randint(0, 9), rng.choice([1, 137, 200, 210]))
    elif act == "take_name":
        args = (rng.randint(0, 9), rng.random() < 0.5, round(rng.choice([1, 10, 60]) * length / LENGTH, 1))
    elif act == "lose_node":
        args = (round(rng.choice([3, 30, 200]) * length / LENGTH, 1),)
    elif act == "delete_configmap":
        args = (rng.choice(NAMES), rng.choice(["", "", "Background", "Orphan"]))
    elif act == "annotate":
        args = (rng.choice(NAMES),)
    return Step(_at(rng, length), act, args)


def _killers(rng: random.Random, length: float, *, virtual: bool) -> Step:
    acts = (
        ["kill_controller"] * 4 + ["kill_at_write"] * 3 + ["restart_server"] * 2 + ["refuse_connections", "fill_disk"]
    )
    acts += ["second_controller"] * 2 + ["compact", *(["step_clock"] if virtual else [])]
    act = rng.choice(acts)
    seconds = round(rng.choice([0.5, 2, 10]) * length / LENGTH, 1)
    args: tuple[Any, ...] = (seconds,)
    if act == "kill_at_write":
        args = (rng.randint(1, 12), rng.random() < 0.5, seconds)
    elif act == "refuse_connections":
        args = (round(rng.choice([3, 60]) * length / LENGTH, 1),)
    elif act == "second_controller":
        # It has to come up first.
        args = (rng.choice([5.0, max(5.0, 60.0 * length / LENGTH)]),)
    elif act == "step_clock":
        args = (rng.choice([-3600.0, -30.0, 30.0, 400.0, 3600.0]),)
    elif act == "fill_disk":
        args = (rng.choice([5.0, 60.0]) * length / LENGTH,)
    elif act == "compact":
        args = ()
    return Step(_at(rng, length), act, args)


def _faults(rng: random.Random, length: float) -> Step:
    # After a late one less can be checked.
    kind = rng.choice([kind for kind in Kind if kind is not Kind.LATE] * 4 + [Kind.LATE])
    seconds = rng.choice([0.5, 2.0, 10.0, 70.0])
    if kind is Kind.HELD:
        seconds = rng.choice([2.0, 20.0, 80.0])
    verb = rng.choice(_VERBS)
    if kind is Kind.STALE:
        verb = "list"
    elif kind is Kind.EXPIRED:
        verb = rng.choice(("list", "watch", ""))
    elif kind in (Kind.CUT, Kind.GARBLED) and rng.random() < 0.3:
        verb = "watch"
    resource = rng.choice(_RESOURCES)
    fault = Fault(kind, verb, resource, rng.choice([1, 1, 1, 2, 5]), round(seconds * length / LENGTH, 2))
    return Step(_at(rng, length), "fault", (fault,))
