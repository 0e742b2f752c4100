"""The strategy of a resource: the default for most built-in kinds, and custom resources.

The registry does the writes; a strategy defines the differences between types: the writable parts of an object, whether
changes increment the generation, the field selectors, and the grace period.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from frameworkcontroller.local.apiserver import builtin, deletion
from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.deletion import DeleteOptions, Verdict
from frameworkcontroller.local.apiserver.metadata import bump_generation
from frameworkcontroller.local.apiserver.status_causes import Cause

_NO_FIELDS: Mapping[str, str] = {}


class Strategy:
    """An ordinary resource. If the type has a ``status`` subresource, only that writes ``status``."""

    create_on_update: ClassVar[bool] = False
    """A PUT creates a missing object."""
    unconditional_update: ClassVar[bool] = True
    """A PUT may omit the resourceVersion."""
    counts_generations: ClassVar[bool] = False
    """``metadata.generation`` counts changes of the desired state."""
    returns_deleted: ClassVar[bool] = False
    """A DELETE returns the object, even if it is removed at once."""
    marks_on_delete: ClassVar[bool] = False
    """A DELETE only marks, for a controller to act on; its error texts differ."""
    field_labels: ClassVar[tuple[str, ...]] = ()
    """The field selectors besides name and namespace."""
    initial_status: ClassVar[Mapping[str, Any] | None] = None
    """The status of a new object, regardless of the request; None: no status."""
    reserved_names: ClassVar[frozenset[str]] = frozenset()
    """Objects that cannot be deleted."""

    def default(self, t: ApiResource, obj: dict[str, Any]) -> dict[str, Any]:
        """Apply the defaults of a built-in kind."""
        return builtin.default(t, obj)

    def prepare_create(self, t: ApiResource, obj: dict[str, Any]) -> None:
        """Remove the fields that a creator may not set."""
        if t.subresource("status") is not None:
            obj.pop("status", None)
            if self.initial_status is not None:
                obj["status"] = dict(self.initial_status)
        if self.counts_generations:
            obj["metadata"]["generation"] = 1

    def prepare_update(self, t: ApiResource, new: dict[str, Any], old: Mapping[str, Any], subresource: str) -> None:
        """Restore the fields that this request may not change, and update the generation."""
        if subresource == "status":
            for key in (new.keys() | old.keys()) - {"status", "metadata"}:
                _keep(new, old, key)
            return
        if t.subresource("status") is not None:
            _keep(new, old, "status")
        if self.counts_generations and _content(new) != _content(old):
            bump_generation(new["metadata"])

    def causes_on_create(self, t: ApiResource, obj: Mapping[str, Any]) -> list[Cause]:
        """Validate a new object."""
        return builtin.causes_on_create(t, obj)

    def causes_on_update(
        self,
        t: ApiResource,
        new: Mapping[str, Any],
        old: Mapping[str, Any],
        subresource: str,  # noqa: ARG002 -- for those that tell subresources apart
    ) -> list[Cause]:
        """Validate ``new`` in place of ``old``."""
        return builtin.causes_on_update(t, new, old)

    def fields(self, obj: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG002 -- an ordinary type has none
        """The values of :attr:`field_labels`."""
        return _NO_FIELDS

    def judge(self, obj: dict[str, Any], options: DeleteOptions, now: float) -> Verdict:
        """Decide on a DELETE at ``now``; besides the verdict's metadata, ``obj`` may be changed in place."""
        return deletion.judge(obj["metadata"], options, None, now)

    def released(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
        """Whether an update releases an object in deletion."""
        return deletion.released(new["metadata"], old["metadata"])


class CustomStrategy(Strategy):
    """Custom resources."""

    unconditional_update = False
    counts_generations = True

    def prepare_update(self, t: ApiResource, new: dict[str, Any], old: Mapping[str, Any], subresource: str) -> None:
        """As for built-in kinds, but a status write keeps all metadata too."""
        super().prepare_update(t, new, old, subresource)
        if subresource == "status":
            managed = new["metadata"].get("managedFields")
            new["metadata"] = dict(old["metadata"])
            if managed is not None:
                new["metadata"]["managedFields"] = managed


def _keep(new: dict[str, Any], old: Mapping[str, Any], key: str) -> None:
    if key in old:
        new[key] = old[key]
    else:
        new.pop(key, None)


def _content(obj: Mapping[str, Any]) -> dict[str, Any]:
    # With a status subresource, the status is equal on both sides here; without one, it counts.
    return {key: value for key, value in obj.items() if key != "metadata"}
