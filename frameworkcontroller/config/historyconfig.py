"""The section of the configuration about the history. Source: docs/configuration.md, "Keys"."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticKnownError

from frameworkcontroller.api.historyrecords import MAX_LOG_BYTES, SNAPSHOT_TRIGGERS, Trigger
from frameworkcontroller.api.inputmodel import INT64_MAX, Section
from frameworkcontroller.machine.kernel.model import KeepLogs

_SNAPSHOTS: Final = tuple(trigger for trigger in Trigger if trigger in SNAPSHOT_TRIGGERS)


def _check_snapshot(value: Any) -> Any:
    if value not in _SNAPSHOTS:
        *most, last = (f"'{trigger}'" for trigger in _SNAPSHOTS)
        raise PydanticKnownError("enum", {"expected": f"{', '.join(most)} or {last}"})
    return value


_SnapshotTrigger = Annotated[Trigger, Field(strict=False), BeforeValidator(_check_snapshot)]


class HistorySinkKind(StrEnum):
    """Where the records go."""

    NONE = "none"
    FILE = "file"
    HTTP = "http"


class OnUnavailable(StrEnum):
    """What happens while the sink takes no records."""

    BLOCK = "Block"
    DROP = "Drop"


class Logs(Section):
    """The logs of containers that go to the sink, before their Pods are deleted. Without a sink, none."""

    keep: Annotated[KeepLogs, Field(strict=False)] = KeepLogs.FAILED
    tail_bytes: Annotated[int, Field(ge=2**10, le=MAX_LOG_BYTES)] = 2**16
    capture_seconds: Annotated[int, Field(ge=1, le=300)] = 10
    concurrency: Annotated[int, Field(ge=1, le=100)] = 8


class History(Section):
    """The sink of the history. Without one, the history is only in the log."""

    # First, as others depend on it.
    sink: Annotated[HistorySinkKind, Field(strict=False)] = HistorySinkKind.NONE
    url: Annotated[str, Field(validate_default=True)] = ""
    path: Annotated[str, Field(validate_default=True)] = ""
    triggers: Annotated[list[_SnapshotTrigger], Field(min_length=1)] = Field(default_factory=lambda: list(_SNAPSHOTS))
    on_unavailable: Annotated[OnUnavailable, Field(strict=False)] = OnUnavailable.BLOCK
    max_pending_bytes: Annotated[int, Field(ge=2**20, le=INT64_MAX)] = 2**28
    token_file: str = ""
    ca_file: str = ""
    cluster: Annotated[str, Field(max_length=253)] = ""
    logs: Logs = Logs()

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: str, info: ValidationInfo) -> str:
        if not value:
            if info.data.get("sink") is HistorySinkKind.HTTP:
                raise ValueError("is required for the sink http")
            return value
        rule = "must be like https://host:port/path"
        try:
            parts = urlsplit(value)
            # Reading the port checks it.
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError as error:
            raise ValueError(f"{rule}: {error}") from error
        if not usable or parts.fragment or not value.isascii() or not value.isprintable() or " " in value:
            raise ValueError(rule)
        if parts.username is not None or parts.password is not None:
            raise ValueError("must not contain credentials, which would be logged: use tokenFile")
        return value

    @field_validator("path")
    @classmethod
    def _is_a_directory(cls, value: str, info: ValidationInfo) -> str:
        if not value and info.data.get("sink") is HistorySinkKind.FILE:
            raise ValueError("is required for the sink file")
        if value and not Path(value).is_absolute():
            raise ValueError("must be an absolute path")
        return value

    @field_validator("ca_file")
    @classmethod
    def _has_a_use(cls, value: str, info: ValidationInfo) -> str:
        if value and info.data.get("url", "").startswith("http:"):
            raise ValueError("has no use: history.url is not https")
        return value

    @field_validator("cluster")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError("must be printable text")
        return value

    @property
    def sink_triggers(self) -> frozenset[Trigger]:
        """The triggers of records that are sent; none without a sink."""
        return frozenset() if self.sink is HistorySinkKind.NONE else frozenset(self.triggers)

    @property
    def kept_logs(self) -> KeepLogs:
        """The attempts whose logs are sent; none without a sink."""
        return KeepLogs.NONE if self.sink is HistorySinkKind.NONE else self.logs.keep

    def with_all_logs(self) -> History:
        """This section, with the logs of all attempts unless it says which."""
        if "keep" in self.logs.model_fields_set:
            return self
        return self.model_copy(update={"logs": self.logs.model_copy(update={"keep": KeepLogs.ALL})})

    @property
    def blocks(self) -> bool:
        """Whether nothing is forgotten before it is stored."""
        return self.sink is not HistorySinkKind.NONE and self.on_unavailable is OnUnavailable.BLOCK
