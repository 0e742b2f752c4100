"""The example manifests, as people find them: their list, their content, and the Pods that they make."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from frameworkcontroller.api.names import KIND
from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.spec import parse_spec
from frameworkcontroller.api.status import FrameworkAttemptStatus, State, TaskAttemptStatus, TaskStatus
from frameworkcontroller.local.manifest_files import Manifest, read_manifests
from tests.support.clusters import Cluster
from tests.support.podtemplates import pod_template

Json = dict[str, Any]

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = ROOT / "examples"
BEFORE: Final = EXAMPLES / "moving/before"
"""Manifests of other controllers."""
OF_KUEUE: Final = EXAMPLES / "kueue/admin"
"""Objects and settings of Kueue."""
OF_ARGO: Final = EXAMPLES / "argo"
"""Objects and settings of Argo Workflows and Argo CD."""


def example_files() -> list[Path]:
    """Every manifest below examples/ that is for this controller."""
    return sorted(path for path in EXAMPLES.rglob("*.yaml") if path.parent not in (BEFORE, OF_KUEUE, OF_ARGO))


def find(name: str) -> Path:
    """The manifest ``name``.yaml, whichever folder it is in."""
    (path,) = EXAMPLES.rglob(f"{name}.yaml")
    return path


def framework_of(path: Path) -> Json:
    """The one Framework of a file, as it is written there."""
    (framework,) = (document for document in yaml.safe_load_all(path.read_text()) if document["kind"] == KIND)
    body: Json = framework
    return body


def objects(path: Path) -> list[Manifest]:
    """Everything in the file."""
    return read_manifests([path])


def pods_of(framework: Json, cluster: Cluster) -> Iterator[Json]:
    """The first Pod of each role, as the controller would create it in the namespace of the tests."""
    spec = parse_spec(framework["spec"])
    if cluster.name == "1.20":
        # It has no field for a Pod's group, so the controller creates no Pod of a gang there.
        spec = spec.model_copy(update={"scheduling": None})
    subject = Framework(cluster.namespace, framework["metadata"]["name"], "framework-uid", 1, False, spec)
    attempt = FrameworkAttemptStatus(id=0, start_time=0, configmap_uid="configmap-uid")
    task = TaskStatus(0, "task-uid", 0, 0, TaskAttemptStatus(0, 0), State.CREATION_PENDING)
    for role in spec.task_roles:
        yield orjson.loads(pod_template(subject, attempt, role, "role-uid").render(task))
