"""The one way in which a sync says "not now"."""

from __future__ import annotations


class RequeueError(Exception):
    """Something transient stands in the way of a sync: try the key again, later each time. The text says what."""
