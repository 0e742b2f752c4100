"""Print frameworkcontroller/commands/lint/podfields.json: the fields of Pods and volume claims, for `lint`.

The source is the models of kubernetes-asyncio, a library of 48 MB that `lint` need not load then. Run by `make docs`; a
test detects an outdated file.
"""

from __future__ import annotations

import json
import re
from typing import Final

from kubernetes_asyncio.client import models

LINTED: Final = ("V1ObjectMeta", "V1PersistentVolumeClaimSpec", "V1PodTemplateSpec")


def fields() -> dict[str, dict[str, str]]:
    """The JSON names and types of the fields of these models, and of all models that those contain."""
    found: dict[str, dict[str, str]] = {}
    waiting = [*LINTED]
    while waiting:
        kind = waiting.pop()
        model = getattr(models, kind, None)
        if kind not in found and model is not None:
            found[kind] = {model.attribute_map[name]: type_ for name, type_ in model.openapi_types.items()}
            waiting += [inner for type_ in found[kind].values() for inner in re.findall(r"V\d\w+", type_)]
    return found


def document() -> str:
    """The file, a line for each model."""
    lines = [f"{json.dumps(kind)}: {json.dumps(types)}" for kind, types in sorted(fields().items())]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    print(document(), end="")
