"""JSON patch (RFC 6902), JSON merge patch (RFC 7386) and Kubernetes' strategic merge patch.

All three return a new document and leave their arguments as they were; the result shares what the patch did not touch.
"""

from __future__ import annotations

from typing import Any

from frameworkcontroller.local.apiserver.typegraph import Type


def json_patch(document: Any, operations: Any) -> Any:
    """``document`` with the operations of a JSON patch done in order, or none of them.

    Raises StatusError: 400 for what is no JSON patch, 422 where an operation does not apply.
    """
    raise NotImplementedError


def merge_patch(document: Any, patch: Any) -> Any:
    """``document`` with a JSON merge patch folded in: null deletes, objects merge, all else replaces.

    Raises StatusError 400 if the patch is not an object.
    """
    raise NotImplementedError


def strategic_merge_patch(document: Any, patch: Any, of: Type) -> Any:
    """``document``, of type ``of``, with a strategic merge patch folded in.

    Raises StatusError: 400 if the patch is not an object, 500 or 422 for directives that make no sense.
    """
    raise NotImplementedError
