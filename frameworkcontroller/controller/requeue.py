"""The error that has a key retried."""

from __future__ import annotations


class RequeueError(Exception):
    """A sync cannot go on for a transient reason, given in the text. The key is retried after its back-off."""
