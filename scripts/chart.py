"""Write the generated files of the Helm chart, manifests/chart, from the kustomizations in manifests/.

`make docs` runs it; a test compares the result. The kustomizations are the source: additions of a component to the base
become conditions in templates. A new component needs an entry in PARTS, and a setting one in `values`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
import yaml

from frameworkcontroller import __version__
from frameworkcontroller.cli import kustomize
from frameworkcontroller.config.config import Config

Json = dict[str, Any]
Files = dict[str, str]

ROOT: Final = Path(__file__).resolve().parents[1]
MANIFESTS: Final = ROOT / "manifests"
CHART: Final = MANIFESTS / "chart"
GENERATED: Final = (
    "Chart.yaml",
    "values.yaml",
    "values.schema.json",
    "files",
    "templates/_checks.tpl",
    "templates/_config.tpl",
    "templates/manifests",
)
"""The generated files and folders of the chart. Of README.md, only the table is generated."""

SCOPE: Final = "namespaceScoped"
"""The switch of overlays/single-namespace."""


class Part(NamedTuple):
    """A kustomize component, and the switch in the values that adds it.

    ``path``: "" for a further effect of several together. ``switch``: "" if ``needs`` alone decide. A dotted switch
    also needs the ones above it. ``text``: its meaning; "" without a value. ``config``: its keys in the controller's
    configuration, as overlays/full has them.
    """

    path: str
    switch: str
    text: str = ""
    needs: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    default: bool = False

    @property
    def switches(self) -> frozenset[str]:
        """All switches that must be on."""
        found: set[str] = set()
        for one in (*self.needs, self.switch):
            words = one.split(".") if one else []
            found.update(".".join(words[: count + 1]) for count in range(len(words)))
        return frozenset(found)

    def of_one_namespace(self) -> str:
        """The component for the controller of one namespace."""
        path = f"{self.path}-single-namespace"
        return path if (MANIFESTS / path).exists() else self.path

    def granted(self) -> Path | None:
        """The manifest by which a cluster administrator grants the cluster-scoped rules to that controller."""
        places = [MANIFESTS / self.of_one_namespace() / "cluster.yaml"]
        if self.switch:
            places.append(MANIFESTS / "overlays/single-namespace" / f"{self.switch}.yaml")
        return next((place for place in places if place.exists()), None)


ARCHIVE: Final = "history.archive"
PARTS: Final = (
    Part("components/gang", "gang", "Permissions for [gangs](../../docs/shared-clusters.md#gangs)"),
    Part("components/kueue", "kueue", "Queues of [Kueue](../../docs/kueue.md)", config=("kueue",)),
    Part(
        "components/kueue-integration",
        "kueue.integration",
        "Permissions of Kueue itself to find the Framework of a Pod",
    ),
    Part(
        "components/progress",
        "progress",
        "Reports of [progress](../../docs/operations.md#reports-of-progress)",
        config=("progressReports",),
    ),
    Part("components/history", "history", "Archive the [history](../../docs/history.md)", config=("history",)),
    Part(
        "components/archive",
        ARCHIVE,
        "An archive in the release's namespace; without it, set `config.history.url`",
        default=True,
    ),
    Part(
        "components/archive-postgresql",
        f"{ARCHIVE}.postgresql",
        "PostgreSQL, by the Secret `archive-database`, in place of SQLite",
    ),
    Part(
        "components/archive-cert-manager", f"{ARCHIVE}.certManager", "Certificates of archive and pages by cert-manager"
    ),
    Part("components/dashboard", "dashboard", "The [web pages](../../docs/pages.md)", needs=(ARCHIVE,)),
    Part("components/admission", "admission", "Refuse Pod templates with frequent mistakes; Kubernetes 1.30 or newer"),
    Part("monitoring", "monitoring", "PodMonitor and alerts of the Prometheus operator, and Grafana's dashboard"),
    Part("components/archive-monitoring", "", needs=("monitoring", ARCHIVE)),
    Part("components/critical", "critical"),
    Part("components/disruption-budgets", "disruptionBudgets", "Permissions for disruption budgets of TaskRoles"),
    # Last: it changes existing policies.
    Part("components/network-policies", "networkPolicies", "Restrict the traffic of all Pods of the release"),
    Part("", "", needs=("networkPolicies", ARCHIVE)),
    Part("", "", needs=("networkPolicies", "dashboard", ARCHIVE)),
)

RULES: Final = {
    "network": (
        ("services",),
        "Permissions for [host names](../../docs/write-a-framework.md#host-names) and Services of TaskRoles",
    ),
    "autoscaling": (("frameworkrolescalers", "frameworkrolescalers/status"), "Permissions for autoscaling"),
    "volumeClaims": (
        ("persistentvolumeclaims",),
        "Permissions for [volume claims](../../docs/write-a-framework.md#volume-claims)",
    ),
}
"""The switches of rules of the base: the resources, and the meaning."""

WORKLOADS: Final = {
    ("StatefulSet", "frameworkcontroller"): "controller",
    ("StatefulSet", "frameworkcontroller-archive"): ARCHIVE,
    ("Deployment", "frameworkcontroller-dashboard"): "dashboard",
}
"""The section of each workload in the values."""

CLUSTER_SCOPED: Final = "clusterScoped"
EXPRESSIONS: Final = {
    "crds": ".Values.crds.install",
    "userRoles": ".Values.userRoles.install",
    CLUSTER_SCOPED: "(or (not .Values.namespaceScoped.enabled) .Values.namespaceScoped.clusterResources)",
    "clusterResources": ".Values.namespaceScoped.clusterResources",
    "critical": '(has "system-cluster-critical" (list .Values.controller.priorityClassName '
    ".Values.history.archive.priorityClassName .Values.dashboard.priorityClassName))",
    "policyV1": '(.Capabilities.APIVersions.Has "policy/v1")',
}
"""The Helm expressions of all other conditions."""

RELEASE_NAMESPACE: Final = "@NAMESPACE@"
"""Stands for the release's namespace until a template is written."""

STRING: Final[Json] = {"type": "string"}
BOOLEAN: Final[Json] = {"type": "boolean"}
MAPPING: Final[Json] = {"type": "object"}
STRINGS: Final[Json] = {"type": "object", "additionalProperties": {"type": "string"}}
MAPPINGS: Final[Json] = {"type": "array", "items": {"type": "object"}}


class Value(NamedTuple):
    """A value of the chart: its path, default, JSON schema and meaning."""

    path: str
    default: Any
    schema: Json
    text: str


def values(defaults: Mapping[str, Json]) -> list[Value]:
    """List all values. ``defaults``: by section, of the workloads in the kustomizations."""
    found = [
        Value("image.repository", "frameworkcontroller", STRING, "Image of all containers"),
        Value("image.tag", "", STRING, "Its tag; by default the chart's `appVersion`"),
        Value(
            "image.digest",
            "",
            {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
            "Its digest, in place of the tag",
        ),
        Value(
            "image.pullPolicy",
            "",
            {"enum": ["", "Always", "IfNotPresent", "Never"]},
            "By default Kubernetes': `IfNotPresent`, but `Always` for the tag `latest`",
        ),
        Value("image.pullSecrets", [], MAPPINGS, "Secrets for the registry: `[{name: NAME}]`"),
        Value(
            "controller.replicas",
            defaults["controller"]["replicas"],
            {"type": "integer", "minimum": 0},
            "Replicas; one acts, the others take over",
        ),
        *_scheduling("controller", "the controller", defaults),
        Value(
            "controller.podDisruptionBudget.enabled",
            True,
            BOOLEAN,
            "Let drains evict one replica at a time; Kubernetes 1.21 or newer",
        ),
        Value(
            "config",
            {},
            MAPPING,
            "Merged into the [configuration](../../docs/configuration.md), which its schema checks",
        ),
        Value(
            "crds.install",
            True,
            BOOLEAN,
            "Install and update the CRDs, and keep them on `helm uninstall`. Otherwise the controller does",
        ),
        Value("userRoles.install", True, BOOLEAN, "ClusterRoles for [users](../../docs/permissions.md)"),
        Value(f"{SCOPE}.enabled", False, BOOLEAN, "Serve only the release's namespace, with Roles alone and no CRD"),
        Value(
            f"{SCOPE}.clusterResources",
            False,
            BOOLEAN,
            "Also install the CRDs, ClusterRoles and cluster-scoped rules; as a cluster administrator",
        ),
        *(Value(f"{switch}.enabled", True, BOOLEAN, text) for switch, (_, text) in RULES.items()),
    ]
    for part in PARTS:
        if part.text:
            found.append(Value(f"{part.switch}.enabled", part.default, BOOLEAN, part.text))
            if part.switch in WORKLOADS.values():
                found += _scheduling(part.switch, f"the {part.switch.split('.')[-1]}", defaults)
    return [
        *found,
        Value(
            "monitoring.namespace",
            "monitoring",
            STRING,
            "Namespace of Prometheus, for the NetworkPolicies",
        ),
        Value(
            "networkPolicies.egress",
            [],
            MAPPINGS,
            "Further egress rules for all Pods, such as the API server's port if it is neither 443 nor 6443",
        ),
        *(
            Value(f"{section}.ingress", [], MAPPINGS, f"Further ingress rules of the NetworkPolicy of the {whose}")
            for section, whose in ((ARCHIVE, "archive"), ("dashboard", "pages"))
        ),
    ]


def _scheduling(section: str, whose: str, defaults: Mapping[str, Json]) -> Iterator[Value]:
    yield Value(f"{section}.resources", defaults[section]["resources"], MAPPING, f"Resources of {whose}")
    yield Value(f"{section}.nodeSelector", {}, STRINGS, "Node labels for its Pods")
    yield Value(f"{section}.tolerations", [], MAPPINGS, "Tolerations of its Pods")
    yield Value(f"{section}.affinity", {}, MAPPING, "Affinity of its Pods")
    yield Value(
        f"{section}.priorityClassName", "", STRING, "PriorityClass of its Pods, such as `system-cluster-critical`"
    )


# --- kustomizations ---


def build(single: bool, parts: Iterable[Part]) -> list[Json]:
    """Return the objects of the base, or of overlays/single-namespace, with the components of these parts."""
    paths = [part.of_one_namespace() if single else part.path for part in parts]
    base = MANIFESTS / ("overlays/single-namespace" if single else "base")
    made = kustomize.build(base, [MANIFESTS / path for path in paths])
    # Sorted, as the keys of templates.
    objects: list[Json] = orjson.loads(orjson.dumps(made, option=orjson.OPT_SORT_KEYS))
    return objects


def namespace_of(single: bool) -> str:
    """Return the namespace in the kustomizations."""
    return "frameworks" if single else "frameworkcontroller"


def switched(on: frozenset[str]) -> list[Part]:
    """Return the parts that these switches add."""
    return [part for part in PARTS if part.path and part.switches <= on]


def _is_excluded(found: Json) -> bool:
    """Return whether a template by hand has the object, or a release cannot."""
    name = found["metadata"]["name"]
    is_config = found["kind"] == "ConfigMap" and name.startswith("frameworkcontroller-config")
    return found["kind"] in ("CustomResourceDefinition", "Namespace") or is_config


def _released(value: Any, namespace: str) -> Any:
    """Replace the namespace by RELEASE_NAMESPACE, and the hash of the configuration."""
    if isinstance(value, dict):
        made = {key: _released(item, namespace) for key, item in value.items()}
        if made.get("namespace") == namespace:
            made["namespace"] = RELEASE_NAMESPACE
        return made
    if isinstance(value, list):
        return [_released(item, namespace) for item in value]
    if isinstance(value, str):
        value = re.sub(r"^(frameworkcontroller-config)-[a-z0-9]{10}$", r"\1", value)
        # Names of Services, and arguments.
        names = rf"\b(archive|dashboard)[.]{namespace}(?=[.]svc|$)"
        return re.sub(
            rf"(?<=--namespace=){namespace}$", RELEASE_NAMESPACE, re.sub(names, rf"\1.{RELEASE_NAMESPACE}", value)
        )
    return value


# --- trees with conditions ---

Conditions = frozenset[str]
"""All must hold: names of switches, or of EXPRESSIONS; "!" negates."""

NONE: Final[Conditions] = frozenset()


@dataclass
class Child:
    """An item of a list, or an entry of a mapping, under conditions.

    ``of``: it exists if the value at this path is not empty.
    """

    node: Any
    key: str = ""
    conditions: Conditions = NONE
    of: str = ""


@dataclass
class Mapped:
    children: list[Child] = field(default_factory=list)


@dataclass
class Listed:
    children: list[Child] = field(default_factory=list)


class Expression(NamedTuple):
    """A scalar that Helm evaluates."""

    text: str


class Block(NamedTuple):
    """A value that Helm writes as YAML."""

    text: str


def tree(value: Any) -> Any:
    """Return the value as a tree without conditions. Empty collections are scalars."""
    if isinstance(value, dict) and value:
        return Mapped([Child(tree(item), key) for key, item in value.items()])
    if isinstance(value, list) and value:
        return Listed([Child(tree(item)) for item in value])
    return value


def holds(conditions: Conditions, on: frozenset[str]) -> bool:
    """Return whether the conditions hold with these switches on."""
    return all((one[1:] not in on) if one.startswith("!") else one in on for one in conditions)


def view(node: Any, on: frozenset[str]) -> Any:
    """Return the value of the tree with these switches on."""
    if isinstance(node, Mapped):
        return {child.key: view(child.node, on) for child in node.children if holds(child.conditions, on)}
    if isinstance(node, Listed):
        return [view(child.node, on) for child in node.children if holds(child.conditions, on)]
    return node


def _identity(value: Any) -> str:
    named = value.get("name") if isinstance(value, dict) else None
    return str(named) if named else orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def absorb(node: Any, value: Any, on: frozenset[str], add: Conditions, remove: str) -> None:
    """Make the view with these switches equal to ``value``.

    ``add``: the conditions of new children. ``remove``: the one that hides others.
    """
    shown = [child for child in node.children if holds(child.conditions, on)]
    if isinstance(node, Mapped):
        own, wanted = [child.key for child in shown], list(value)
        items = [value[key] for key in wanted]
    else:
        own, wanted = [_identity(view(child.node, on)) for child in shown], list(map(_identity, value))
        items = list(value)
    keys = wanted if isinstance(node, Mapped) else [""] * len(wanted)
    # The keys of mappings are unordered.
    order = [key for key in own if key in wanted] + [key for key in wanted if key not in own]
    if isinstance(node, Mapped):
        items, keys, wanted = [value[key] for key in order], order, order
    last: Child | None = None

    def insert(number: int) -> Child:
        made = Child(tree(items[number]), keys[number], add)
        place = 0 if last is None else next(i for i, child in enumerate(node.children) if child is last) + 1
        # After earlier additions.
        while place < len(node.children) and not holds(node.children[place].conditions, on):
            place += 1
        node.children.insert(place, made)
        return made

    for kind, start, end, first, after in SequenceMatcher(None, own, wanted, autojunk=False).get_opcodes():
        if kind != "equal":
            for child in shown[start:end]:
                child.conditions |= {remove}
                last = child
            for number in range(first, after):
                last = insert(number)
            continue
        for child, number in zip(shown[start:end], range(first, after), strict=True):
            last = child
            current, item = view(child.node, on), items[number]
            if current == item:
                continue
            if isinstance(child.node, Mapped | Listed) and item and type(current) is type(item):
                absorb(child.node, item, on, add, remove)
            else:
                child.conditions |= {remove}
                last = insert(number)


Key = tuple[str, str]


class Objects:
    """All objects, by kind and name, as trees under conditions."""

    def __init__(self) -> None:
        self.root = Mapped()

    def absorb(self, found: Iterable[Json], on: frozenset[str], add: Conditions, remove: str) -> None:
        """Make the view with these switches equal to these objects."""
        wanted = {f"{one['kind']}/{one['metadata']['name']}": one for one in found}
        absorb(self.root, wanted, on, add, remove)
        assert view(self.root, on) == wanted

    def items(self) -> list[tuple[Key, Child]]:
        """Return kind and name of each object, with its child. A name occurs twice if two scopes differ in it."""
        found = []
        for child in self.root.children:
            kind, _, name = child.key.partition("/")
            found.append(((kind, name), child))
        return found


def collect() -> tuple[Objects, Mapped]:
    """Return all objects and the configuration of the kustomizations, as trees under conditions."""
    objects = Objects()
    scopes = ((False, NONE), (True, frozenset({SCOPE})))
    for single, scope in scopes:
        for part in (None, *sorted(PARTS, key=lambda part: len(part.switches))):
            on = scope | (part.switches if part else NONE)
            found = [one for one in build(single, switched(on)) if not _is_excluded(one)]
            released = _released(found, namespace_of(single))
            remove = f"!{SCOPE}" if single else f"!{(part.switch or part.needs[0]) if part else ''}"
            objects.absorb(released, on, on, remove)
    _gate(objects)
    _grant(objects)
    return objects, _configuration()


def _gate(objects: Objects) -> None:
    """Add the conditions that no kustomization expresses."""
    users = {one["metadata"]["name"] for one in _load(MANIFESTS / "users/clusterroles.yaml")}
    for (kind, name), child in objects.items():
        metadata = {entry.key: entry.node for entry in _entry(child.node, "metadata").children}
        if "namespace" not in metadata and f"!{SCOPE}" not in child.conditions:
            child.conditions |= {CLUSTER_SCOPED}
        if name in users:
            child.conditions = child.conditions - {f"!{SCOPE}"} | {CLUSTER_SCOPED, "userRoles"}
        if kind == "PodDisruptionBudget":
            child.conditions |= {"policyV1"}
        if (kind, name) == ("PodDisruptionBudget", "frameworkcontroller"):
            child.conditions |= {"controller.podDisruptionBudget"}
        if kind in ("ClusterRole", "Role"):
            _gate_rules(_entry(child.node, "rules"))


def _gate_rules(rules: Listed) -> None:
    for rule in rules.children:
        shown = view(rule.node, NONE)
        for switch, (resources, _) in RULES.items():
            if shown.get("resources") and set(shown["resources"]) <= set(resources):
                rule.conditions |= {switch}
        if shown.get("resources") == ["customresourcedefinitions"]:
            # Never both: otherwise an older controller would write over the chart's CRD.
            for verb in _entry(rule.node, "verbs").children:
                if verb.node in ("create", "update"):
                    verb.conditions |= {"!crds"}
            if shown["verbs"] == ["create"]:
                rule.conditions |= {"!crds"}


def _grant(objects: Objects) -> None:
    """Add the cluster-scoped rules for the controller of one namespace."""
    files = {MANIFESTS / "overlays/single-namespace/nodes.yaml": NONE}
    for part in PARTS:
        if (path := part.granted()) is not None:
            files[path] = part.switches
    for path, switches in files.items():
        for one in _load(path):
            text = orjson.dumps(_released(one, namespace_of(True))).decode()
            made = orjson.loads(
                text.replace("frameworkcontroller-frameworks-", f"frameworkcontroller-{RELEASE_NAMESPACE}-")
            )
            key = f"{made['kind']}/{made['metadata']['name']}"
            objects.root.children.append(Child(tree(made), key, switches | {SCOPE, "clusterResources"}))


def _configuration() -> Mapped:
    base = _load(MANIFESTS / "base/frameworkcontroller.yaml")[0]
    full = _load(MANIFESTS / "overlays/full/frameworkcontroller.yaml")[0]
    config: Mapped = tree(base)
    config.children.insert(0, Child(RELEASE_NAMESPACE, "namespace", frozenset({SCOPE})))
    for part in PARTS:
        for key in part.config:
            config.children.append(Child(tree(_released(full[key], namespace_of(False))), key, part.switches))
    return config


def _load(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def _entry(node: Any, *keys: str) -> Any:
    for key in keys:
        (node,) = (child.node for child in node.children if child.key == key)
    return node


# --- values in templates ---


def parametrize(objects: Objects) -> dict[str, Json]:
    """Replace settings by values. Return their defaults, by section."""
    defaults: dict[str, Json] = {}
    sections = {name: section for (_, name), section in WORKLOADS.items()}
    for key, child in objects.items():
        if (section := WORKLOADS.get(key)) is not None:
            defaults[section] = _parametrize_workload(child.node, section)
        if key[0] == "NetworkPolicy":
            _parametrize_policy(child.node, sections[key[1]])
        if key == ("ConfigMap", "frameworkcontroller-dashboard"):
            (data,) = _entry(child.node, "data").children
            data.node = Block('.Files.Get "files/dashboard.json"')
    return defaults


def _parametrize_workload(node: Mapped, section: str) -> Json:
    defaults: Json = {}
    template = _entry(node, "spec", "template")
    pod = _entry(template, "spec")
    (container,) = (child.node for child in _entry(pod, "containers").children)
    for child in container.children:
        if child.key == "image":
            child.node = Expression('include "frameworkcontroller.image" . | quote')
        if child.key == "resources":
            defaults["resources"] = view(child.node, NONE)
            child.node, child.of = Block("toYaml ."), f".Values.{section}.resources"
    at = next(number for number, child in enumerate(container.children) if child.key == "image")
    container.children.insert(at + 1, _of_value("imagePullPolicy", "image.pullPolicy", Expression(".")))
    if section == "controller":
        (replicas,) = (child for child in _entry(node, "spec").children if child.key == "replicas")
        defaults["replicas"], replicas.node = replicas.node, Expression(".Values.controller.replicas")
        checksum = Expression('include "frameworkcontroller.config" . | sha256sum')
        _entry(template, "metadata").children.insert(
            0, Child(Mapped([Child(checksum, "checksum/config")]), "annotations")
        )
    pod.children = [child for child in pod.children if child.key != "priorityClassName"]
    pod.children.append(_of_value("imagePullSecrets", "image.pullSecrets", Block("toYaml .")))
    pod.children += [
        _of_value(key, f"{section}.{key}", Block("toYaml .")) for key in ("nodeSelector", "tolerations", "affinity")
    ]
    pod.children.append(_of_value("priorityClassName", f"{section}.priorityClassName", Expression("quote .")))
    return defaults


def _of_value(key: str, path: str, node: Any) -> Child:
    return Child(node, key, of=f".Values.{path}")


def _parametrize_policy(node: Mapped, section: str) -> None:
    for child in _entry(node, "spec").children:
        if child.key == "egress":
            child.node.children.append(Child(Block("toYaml ."), of=".Values.networkPolicies.egress"))
        if child.key == "ingress" and section != "controller":
            if child.node == []:
                child.node = Expression(f".Values.{section}.ingress | toJson")
            else:
                child.node.children.append(Child(Block("toYaml ."), of=f".Values.{section}.ingress"))
    _parametrize_prometheus(node)


def _parametrize_prometheus(node: Any) -> None:
    if isinstance(node, Mapped | Listed):
        for child in node.children:
            if (child.key, child.node) == ("kubernetes.io/metadata.name", "monitoring"):
                child.node = Expression(".Values.monitoring.namespace | quote")
            _parametrize_prometheus(child.node)


# --- text ---


def _expression(condition: str) -> str:
    name = condition.removeprefix("!")
    text = EXPRESSIONS.get(name, f".Values.{name}.enabled")
    return f"(not {text})" if condition.startswith("!") else text


def _opened(conditions: Conditions) -> str:
    texts = [_expression(one) for one in sorted(conditions, key=lambda one: (one.startswith("!"), one))]
    text = texts[0] if len(texts) == 1 else f"(and {' '.join(texts)})"
    return f"{{{{- if {text[1:-1] if text.startswith('(') else text} }}}}"


def _flow(value: Any, width: int = 200) -> str:
    """Return the value as YAML in flow style."""
    text: str = yaml.safe_dump(value, width=width, allow_unicode=True, default_flow_style=True)
    return text.removesuffix("\n").removesuffix("\n...")


def _scalar(value: Any, indent: int) -> list[str]:
    if isinstance(value, Expression):
        return [f"{{{{ {value.text} }}}}"]
    escaped = _flow(value, width=100).replace("{{", '{{ "{{" }}').replace(RELEASE_NAMESPACE, "{{ .Release.Namespace }}")
    first, *others = escaped.splitlines()
    return [first, *(" " * indent + line.strip() for line in others)]


def _opposite(conditions: Conditions) -> Conditions:
    """Return the negation of a single condition, and nothing for several."""
    if len(conditions) != 1:
        return NONE
    (one,) = conditions
    return frozenset({one[1:] if one.startswith("!") else f"!{one}"})


def lines(node: Any, indent: int, assumed: Conditions) -> Iterator[str]:
    """Write the collection as YAML with conditions. ``assumed``: they hold here."""
    children = node.children
    assert any(not child.conditions - assumed and not child.of for child in children), "may be empty"
    space = " " * indent
    for number, child in enumerate(children):
        own = child.conditions - assumed
        before = children[number - 1].conditions - assumed if number else NONE
        after = children[number + 1].conditions - assumed if number + 1 < len(children) else NONE
        if own and own != before:
            yield f"{space}{{{{- else }}}}" if own == _opposite(before) else space + _opened(own)
        if child.of:
            yield f"{space}{{{{- with {child.of} }}}}"
        yield from _entry_lines(child, indent, assumed | own)
        if child.of:
            yield f"{space}{{{{- end }}}}"
        if own and own != after and own != _opposite(after):
            yield f"{space}{{{{- end }}}}"


def _entry_lines(child: Child, indent: int, assumed: Conditions) -> Iterator[str]:
    space = " " * indent
    if not child.key:
        if isinstance(child.node, Block):
            yield f"{space}{{{{- {child.node.text} | nindent {indent} }}}}"
            return
        inner = (
            lines(child.node, indent + 2, assumed)
            if isinstance(child.node, Mapped | Listed)
            else iter(_scalar(child.node, indent + 2))
        )
        first = next(inner).lstrip()
        assert not first.startswith("{{-"), "conditional first entry of an item"
        yield f"{space}- {first}"
        yield from inner
        return
    (key,) = _scalar(child.key, 0)
    if isinstance(child.node, Mapped | Listed):
        yield f"{space}{key}:"
        yield from lines(child.node, indent + 2, assumed)
    elif isinstance(child.node, Block):
        text = child.node.text
        if text.startswith(".Files"):
            yield f"{space}{key}: |"
            yield f"{{{{ {text} | indent {indent + 2} }}}}"
        else:
            yield f"{space}{key}:"
            yield f"{space}  {{{{- {text} | nindent {indent + 2} }}}}"
    else:
        first, *others = _scalar(child.node, indent + 2)
        yield f"{space}{key}: {first}"
        yield from others


NOTE: Final = "Generated from {} by scripts/chart.py."


def _object_file(child: Child) -> str:
    text = "\n".join(lines(child.node, 0, child.conditions))
    if child.conditions:
        text = f"{_opened(child.conditions)}\n{text}\n{{{{- end }}}}"
    return f"{{{{- /* {NOTE.format('manifests/')} */}}}}\n{text}\n"


def _crd_file(path: Path) -> str:
    """Return the CRD, with the annotation that keeps it, and the labels of the base. Comments are left out."""
    (found,) = _load(path)
    metadata = {**found["metadata"], "annotations": {"helm.sh/resource-policy": "keep"}}
    labels = _entry(tree({"labels": _base_labels()}), "labels")
    made = tree({**found, "metadata": metadata})
    _entry(made, "metadata").children.append(Child(labels, "labels"))
    return _object_file(Child(made, path.stem, frozenset({"crds", CLUSTER_SCOPED})))


def _base_labels() -> Json:
    (labels,) = _load(MANIFESTS / "base/kustomization.yaml")[0]["labels"]
    return dict(labels["pairs"])


def _values_file(found: Sequence[Value]) -> str:
    nested: Json = {}
    for one in found:
        *path, last = one.path.split(".")
        place = nested
        for word in path:
            place = place.setdefault(word, {})
        place[last] = one

    def written(section: Json, indent: int) -> Iterator[str]:
        space = " " * indent
        for key, one in section.items():
            if isinstance(one, Value):
                plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", one.text)
                yield f"{space}# {plain}."
                yield f"{space}{key}: {_flow(one.default)}"
            else:
                yield f"{space}{key}:"
                yield from written(one, indent + 2)

    return f"# {NOTE.format('manifests/')}\n" + "\n".join(written(nested, 0)) + "\n"


def _schema_file(found: Sequence[Value]) -> str:
    config = _without_notes(Config.model_json_schema(by_alias=True))
    definitions = config.pop("$defs")
    address = {"anyOf": [{"type": "string"}, {"const": 0}]}
    config["properties"]["webAddress"] = definitions["ProgressReports"]["properties"]["bindAddress"] = address
    classes = config["properties"]["podFailureSpec"]
    config["properties"]["podFailureSpec"] = {"anyOf": [{"const": "shipped"}, classes]}
    root: Json = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$comment": "Generated from scripts/chart.py and the controller's configuration.",
        "type": "object",
        "additionalProperties": False,
        # Of charts that include this one: values for all charts, and the condition of the dependency.
        "properties": {"global": {"type": "object"}, "enabled": {"type": "boolean"}},
    }
    for one in found:
        *path, last = one.path.split(".")
        place = root
        for word in path:
            place = place["properties"].setdefault(
                word, {"type": "object", "additionalProperties": False, "properties": {}}
            )
        place["properties"][last] = config if one.path == "config" else one.schema
    root["$defs"] = definitions
    return orjson.dumps(root, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _without_notes(value: Any, *, named: bool = False) -> Any:
    """Omit titles, descriptions and defaults. ``named``: the keys are names of properties."""
    if isinstance(value, list):
        return [_without_notes(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_notes(item, named=key in ("properties", "$defs") and not named)
        for key, item in value.items()
        # Helm reads numbers as floats: bounds of 64 bits would refuse themselves.
        if named
        or (key not in ("title", "description", "default") and not (isinstance(item, int) and abs(item) > 2**53))
    }


def _checks_file() -> str:
    """Return the template that refuses a switch without those that it needs."""
    texts = []
    for part in PARTS:
        others = part.switches - {part.switch}
        if part.switch and part.needs:
            wanted = " and ".join(f"{name}.enabled" for name in sorted(others))
            condition = (
                f"{{{{- if and {_expression(part.switch)} (not (and {' '.join(map(_expression, sorted(others)))})) }}}}"
            )
            texts.append(f'{condition}\n{{{{- fail "{part.switch}.enabled needs {wanted}" }}}}\n{{{{- end }}}}\n')
    return f'{{{{- define "frameworkcontroller.generatedChecks" -}}}}\n{"".join(texts)}{{{{- end }}}}\n'


def _table(found: Sequence[Value]) -> str:
    rows = ["| value | default | meaning |", "|---|---|---|"]
    rows += [f"| `{one.path}` | `{_flow(one.default)}` | {one.text} |" for one in found]
    return "\n".join(rows)


MARKS: Final = ("<!-- values -->\n", "<!-- end of values -->\n")


def files() -> Files:
    """Return the content of each generated file of the chart, by its path."""
    objects, config = collect()
    found = values(parametrize(objects))
    made = {
        "Chart.yaml": CHART_FILE.format(note=NOTE.format("the version"), version=__version__),
        "values.yaml": _values_file(found),
        "values.schema.json": _schema_file(found),
        "files/dashboard.json": (MANIFESTS / "monitoring/dashboard.json").read_text(),
        "templates/_config.tpl": '{{- define "frameworkcontroller.shippedConfig" -}}\n'
        + "\n".join(lines(config, 0, NONE))
        + "\n{{- end }}\n",
        "templates/_checks.tpl": _checks_file(),
    }
    for (kind, name), child in objects.items():
        path = f"templates/manifests/{kind}-{name.replace(RELEASE_NAMESPACE, 'namespace')}.yaml".lower()
        made[path] = made.get(path, "") + ("---\n" if path in made else "") + _object_file(child)
    for file in sorted((ROOT / "crd").glob("*.yaml")):
        if file.name != "kustomization.yaml":
            made[f"templates/manifests/crd-{file.name}"] = _crd_file(file)
    before, _, rest = (CHART / "README.md").read_text().partition(MARKS[0])
    made["README.md"] = f"{before}{MARKS[0]}{_table(found)}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}"
    return made


CHART_FILE: Final = """\
# {note}
apiVersion: v2
name: frameworkcontroller
description: Runs batch and service jobs of many Pods on Kubernetes as one Framework.
type: application
version: {version}
appVersion: {version}
"""


def generated() -> dict[str, Path]:
    """Return the generated files that are there, by their paths in the chart."""
    found = []
    for name in (*GENERATED, "README.md"):
        place = CHART / name
        found += [place] if place.is_file() else [one for one in place.rglob("*") if one.is_file()]
    return {str(path.relative_to(CHART)): path for path in found}


def main() -> None:
    """Write the files, and delete obsolete ones."""
    made = files()
    for name, path in generated().items():
        if name not in made:
            path.unlink()
    for name, text in made.items():
        path = CHART / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
