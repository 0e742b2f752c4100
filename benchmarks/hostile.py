"""CPU seconds of what a user could write to stop a controller, by size.

    python -m benchmarks.hostile

Each was quadratic once; tests/unit/test_budgets.py keeps all fields linear.
"""

from __future__ import annotations

import itertools
import string
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import orjson

from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.spec import SpecError, parse_spec
from frameworkcontroller.api.status import FrameworkAttemptStatus
from frameworkcontroller.kube.parsing import loads_without_managed_fields
from frameworkcontroller.machine.kernel.manifests import PodTemplate

_UID: Final = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
_SIZES: Final = (100_000, 300_000, 600_000, 1_400_000)
_ROLES: Final = (500, 1000, 2000, 3500)


def _spec_of(text: str) -> dict[str, Any]:
    return {"network": {}, "taskRoles": [{"name": "a", "task": {"pod": {"metadata": {"annotations": {"x": text}}}}}]}


def _parse(spec: dict[str, Any]) -> None:
    try:
        parse_spec(spec, framework="f")
    except SpecError:
        return


def _placeholders(size: int) -> Callable[[], Any]:
    spec = _spec_of("{{FC_HOSTS:" * (size // 11))
    return lambda: _parse(spec)


def _digits() -> Iterator[str]:
    return map(str, itertools.count())


def _letters() -> Iterator[str]:
    return map("".join, itertools.product(string.ascii_uppercase, repeat=5))


def _markers(size: int, salts: Callable[[], Iterator[str]]) -> Callable[[], Any]:
    text = "".join(f"@{salt}-" for salt in itertools.islice(salts(), size // 7))
    subject = Framework("default", "f", _UID, 1, deleting=False, spec=parse_spec(_spec_of(text)))
    attempt = FrameworkAttemptStatus(0, 0, configmap_uid=_UID)
    return lambda: PodTemplate(subject, attempt, subject.spec.task_roles[0], _UID)


def _managed_fields(size: int) -> Callable[[], Any]:
    entry: dict[str, Any] = {"managedFields": [{}]}
    body = {"metadata": {"name": "f"}, "spec": _spec_of("") | {"x": [entry] * (size // 23)}}
    data = orjson.dumps(body)
    return lambda: loads_without_managed_fields(data)


def _host_lists(roles: int) -> Callable[[], Any]:
    pod = {"metadata": {"annotations": {"x": "{{FC_HOSTS:all}}"}}}
    listed = [{"name": f"r{number}", "task": {"pod": pod}} for number in range(roles)]
    spec = {"network": {}, "taskRoles": [{"name": "all", "taskNumber": 9000}, *listed]}
    return lambda: _parse(spec)


_POISONS: Final[dict[str, tuple[Callable[[int], Callable[[], Any]], Sequence[int]]]] = {
    "api/hostlists.py: `{{FC_HOSTS:` without end, bytes": (_placeholders, _SIZES),
    "machine/kernel/manifests.py: `@0-@1-...`, bytes": (partial(_markers, salts=_digits), _SIZES),
    "machine/kernel/manifests.py: `@AAAAA-@AAAAB-...`, bytes": (partial(_markers, salts=_letters), _SIZES),
    "kube/parsing.py: `managedFields` in user data, bytes": (_managed_fields, _SIZES),
    "api/spec.py: roles with a list of 9,000 hosts": (_host_lists, _ROLES),
}


def main() -> None:
    """Print a table."""
    for name, (prepare, sizes) in _POISONS.items():
        cells = []
        for size in sizes:
            run = prepare(size)
            begun = time.process_time()
            run()
            cells.append(f"{size:,}: {time.process_time() - begun:.3f} s")
        print(f"{name:55}", *cells, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
