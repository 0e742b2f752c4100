"""Odd content that users write: templates of unusual shape, invalid specs, Frameworks without roles.

The functions change the JSON of one Framework, and take a random generator of their own.
"""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any, Final

from frameworkcontroller.api import names
from tests.support.frameworks import Json

NOBODY: Final = "nobody"
"""The name of no role."""
MAX_EXEC_LABEL: Final = names.MAX_EXEC_TIME_SECONDS

_LARGEST: Final = 40_000
"""Bytes of a large annotation. The record keeps each version of an object."""
_PLACEHOLDERS: Final = (
    names.FRAMEWORK_NAME,
    names.TASKROLE_NAME,
    names.TASK_INDEX,
    names.POD_NAME,
    names.CONFIGMAP_NAME,
)
_TOKENS: Final = (
    "@0-@1-",
    "{{FC_HOSTS:",
    "{{{{",
    '"managedFields":[{',
    "\\",
    '"',
    "ä€𝄞",
    "\u2028",
    "$(FC_POD_NAME)",
)
"""Texts that mean something to a parser or renderer. A host list with an end would be invalid."""


def odd_template(rng: random.Random, template: Json, *, fails: bool) -> Json:
    """Return a Pod template with odd content. ``fails``: the API server may also refuse its Pods."""
    odd = deepcopy(template)
    for _ in range(rng.randint(1, 4)):
        _make_odd(rng, odd)
    if fails and rng.random() < 0.2:
        odd["spec"] |= rng.choice([{"restartPolicy": "Sometimes"}, {"containers": []}, {"volumes": "none"}])
    return odd


def _make_odd(rng: random.Random, template: Json) -> None:
    metadata, spec = template["metadata"], template["spec"]
    main: Json = spec["containers"][0]
    match rng.choice(["identity", "placeholder", "placeholder", "tokens", "large", "empty"]):
        case "identity":
            field = rng.choice(["labels", "annotations"])
            name = rng.choice([names.FRAMEWORK_NAME, names.TASK_INDEX, names.FRAMEWORK_UID, names.CONFIGMAP_UID])
            metadata[field] = (metadata.get(field) or {}) | {name: "other"}
        case "placeholder":
            _place(rng, metadata, spec, names.placeholder(rng.choice(_PLACEHOLDERS)))
        case "tokens":
            text = "".join(rng.choices(_TOKENS, k=rng.randint(1, 30)))
            main["env"] = [*(main.get("env") or ()), {"name": "ODD", "value": text}]
        case "large":
            metadata["annotations"] = metadata["annotations"] | {
                "example.com/large": "x@0-" * rng.randint(1, _LARGEST // 4)
            }
        case _:
            spec |= rng.choice([{"volumes": None}, {"volumes": []}, {"initContainers": []}, {"nodeSelector": None}])


def _place(rng: random.Random, metadata: Json, spec: Json, text: str) -> None:
    """Put a placeholder somewhere."""
    main: Json = spec["containers"][0]
    match rng.choice(["label", "annotation", "key", "env", "args", "volume"]):
        case "label":
            metadata["labels"] = (metadata.get("labels") or {}) | {"example.com/odd": text}
        case "annotation":
            metadata["annotations"] = metadata["annotations"] | {"example.com/odd": text * rng.randint(1, 50)}
        case "key":
            metadata["annotations"] = metadata["annotations"] | {f"example.com/{text}": "odd"}
        case "env":
            main["env"] = [*(main.get("env") or ()), {"name": "ODD", "value": text}]
        case "args":
            main["args"] = [*(main.get("args") or ()), text]
        case _:
            name = "v-" + text
            spec["volumes"] = [*(spec.get("volumes") or ()), {"name": name, "emptyDir": {}}]


def break_roles(rng: random.Random, roles: list[Json], *, queued: bool) -> Json:
    """Return the fields that make a valid spec with these roles invalid. An API server without CEL accepts them."""
    changed = deepcopy(roles)
    kinds = ["coordinator", "coordinator", *(["dependency", "cycle"] if roles else [])]
    kinds += ["request"] * 2 if queued and roles else []
    kind = rng.choice(kinds)
    if kind == "coordinator":
        return {"coordinator": {"taskRole": NOBODY, "taskIndex": 0}}
    at = rng.randrange(len(changed))
    if kind == "request":
        containers = changed[at]["task"]["pod"]["spec"].get("containers")
        if isinstance(containers, list) and containers:
            containers[0]["resources"] = {"requests": {"cpu": names.placeholder(names.TASK_INDEX)}}
    else:
        name = NOBODY if kind == "dependency" else changed[at]["name"]
        changed[at]["dependsOn"] = [{"name": name, "status": "Ready"}]
    return {"taskRoles": changed}


def mended_fields(spec: Json) -> Json:
    """Return the fields that take back `break_roles`; empty if nothing is broken."""
    fields: Json = {}
    if (spec.get("coordinator") or {}).get("taskRole") == NOBODY:
        fields["coordinator"] = None
    roles: list[Json] = deepcopy(spec.get("taskRoles") or [])
    for role in roles:
        role["dependsOn"] = [one for one in role.get("dependsOn") or () if one["name"] not in (NOBODY, role["name"])]
        containers = role["task"]["pod"]["spec"].get("containers")
        for container in containers if isinstance(containers, list) else ():
            requests: Any = (container.get("resources") or {}).get("requests") or {}
            if "{{" in str(requests.get("cpu")):
                requests["cpu"] = "1"
    if [role.get("dependsOn") or [] for role in spec.get("taskRoles") or ()] != [
        role["dependsOn"] for role in roles
    ] or str(roles).count("{{") != str(spec.get("taskRoles")).count("{{"):
        fields["taskRoles"] = roles
    return fields
