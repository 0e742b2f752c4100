"""What is particular about a resource: the ordinary case, which most built-in kinds are, and custom resources.

The registry knows how a write goes; a strategy fills in what differs between types: which part of an object a request
may touch, whether changes of it are counted, which fields can be selected by, and how long a deletion may take.
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
    """An ordinary resource. Where the type has a ``status`` subresource, only that writes ``status``."""

    create_on_update: ClassVar[bool] = False
    """A PUT to a name that does not exist creates the object."""
    unconditional_update: ClassVar[bool] = True
    """A PUT need not name the resourceVersion that it replaces."""
    counts_generations: ClassVar[bool] = False
    """``metadata.generation`` counts the changes of what is wanted."""
    returns_deleted: ClassVar[bool] = False
    """A DELETE answers with the object, also when that is gone at once."""
    marks_on_delete: ClassVar[bool] = False
    """A DELETE only marks, for a controller to act on; its refusals are worded differently."""
    field_labels: ClassVar[tuple[str, ...]] = ()
    """What field selectors may ask for besides name and namespace."""
    initial_status: ClassVar[Mapping[str, Any] | None] = None
    """What a new object's status is, whatever the request says; None: no status at all."""
    reserved_names: ClassVar[frozenset[str]] = frozenset()
    """Objects that cannot be deleted."""

    def default(self, t: ApiResource, obj: dict[str, Any]) -> dict[str, Any]:
        """``obj`` with the defaults of a built-in kind."""
        return builtin.default(t, obj)

    def prepare_create(self, t: ApiResource, obj: dict[str, Any]) -> None:
        """Takes out of a new object what its creator may not say."""
        if t.subresource("status") is not None:
            obj.pop("status", None)
            if self.initial_status is not None:
                obj["status"] = dict(self.initial_status)
        if self.counts_generations:
            obj["metadata"]["generation"] = 1

    def prepare_update(self, t: ApiResource, new: dict[str, Any], old: Mapping[str, Any], subresource: str) -> None:
        """Puts back in ``new`` what this request may not change, and counts what it does change."""
        if subresource == "status":
            for key in (new.keys() | old.keys()) - {"status", "metadata"}:
                _keep(new, old, key)
            return
        if t.subresource("status") is not None:
            _keep(new, old, "status")
        if self.counts_generations and _content(new) != _content(old):
            bump_generation(new["metadata"])

    def causes_on_create(self, t: ApiResource, obj: Mapping[str, Any]) -> list[Cause]:
        """What is wrong with a new object."""
        return builtin.causes_on_create(t, obj)

    def causes_on_update(
        self,
        t: ApiResource,
        new: Mapping[str, Any],
        old: Mapping[str, Any],
        subresource: str,  # noqa: ARG002 -- for those that tell subresources apart
    ) -> list[Cause]:
        """What is wrong with ``new`` in place of ``old``."""
        return builtin.causes_on_update(t, new, old)

    def fields(self, obj: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG002 -- an ordinary type has none
        """The values of :attr:`field_labels`."""
        return _NO_FIELDS

    def judge(self, obj: dict[str, Any], options: DeleteOptions, now: float) -> Verdict:
        """What a DELETE at ``now`` does; besides the metadata in the verdict, ``obj`` may be changed in place."""
        return deletion.judge(obj["metadata"], options, None, now)

    def released(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
        """Whether an update lets go of an object that is being deleted."""
        return deletion.released(new["metadata"], old["metadata"])


class CustomStrategy(Strategy):
    """Custom resources."""

    unconditional_update = False
    counts_generations = True

    def prepare_update(self, t: ApiResource, new: dict[str, Any], old: Mapping[str, Any], subresource: str) -> None:
        """As for built-in kinds, but a write of the status leaves all metadata as they were too."""
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
    # The status is equal on both sides by now where there is a status subresource, and counts where there is none.
    return {key: value for key, value in obj.items() if key != "metadata"}
