"""The controller's configuration: what may be set, within which bounds, and what holds when nothing is set.

Source: behaviour, "Configuration". The keys are the original's. An unknown key or a bad value is an error that names
it, and all errors of a file are told at once; a value of null counts as not given. What a file leaves out is the
default. Where there is no file, the one that ships with the package takes its place: users of the original who mount
none get that of its image, and with it the completion codes that clients know.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import re2
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from frameworkcontroller.api.completion import CONFLICT, FAILED, PERMANENT, RESERVED, TRANSIENT, Code
from frameworkcontroller.configfile import (
    ConfigError,
    ConfigFile,
    ConfigMissing,
    KeyPath,
    Problem,
    read_config_file,
    suggestion,
)
from frameworkcontroller.kube.connection import check_address
from frameworkcontroller.kube.errors import ConnectionConfigError
from frameworkcontroller.machine.failure import Classifier, ContainerPattern, FailureClass, PodPattern, Range, Regex
from frameworkcontroller.machine.model import Limits, Trigger

__all__ = ["Config", "ConfigError", "load_config", "shipped_config"]

_log: Final = logging.getLogger(__name__)

DEFAULT_CONFIG_FILE: Final = "frameworkcontroller.yaml"

SHIPPED_CONFIG_FILE: Final = Path(__file__).with_name("default-config.yaml")

DEFAULT_QPS: Final = 80.0
DEFAULT_BURST: Final = 120
"""The original's. Users with many Frameworks raise them."""

_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1

_KNOWN_ATTRIBUTES: Final = frozenset({TRANSIENT, CONFLICT, PERMANENT})

Int32 = Annotated[int, Field(ge=-_INT32_MAX - 1, le=_INT32_MAX)]
Int64 = Annotated[int, Field(ge=-_INT64_MAX - 1, le=_INT64_MAX)]


def _compilable(pattern: str) -> str:
    if pattern:
        compile_regex(pattern)
    return pattern


def compile_regex(pattern: str) -> Regex:
    """The compiled RE2 pattern; flags go in front, as in ``(?i)``.

    Raises:
        ValueError: RE2 does not know such a pattern (look-around and back-references are what it leaves out).
    """
    options = re2.Options()
    # Else the library writes to stderr itself, in a shape of its own.
    options.log_errors = False
    try:
        compiled: Regex = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"is not a regular expression of RE2: {text}") from None
    return compiled


RegexText = Annotated[str, AfterValidator(_compilable)]
"""Empty is not given, as in the original."""


class _Section(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_not_given(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        known = {info.alias for info in cls.model_fields.values()}
        return {key: item for key, item in value.items() if item is not None or key not in known}


class IntRange(_Section):
    """Whole numbers from ``min`` to ``max``, both included; what is not given is open."""

    min: Int32 | None = None
    max: Int32 | None = None

    @field_validator("max")
    @classmethod
    def _not_below_min(cls, value: int | None, info: ValidationInfo) -> int | None:
        lowest = info.data.get("min")
        if value is not None and lowest is not None and value < lowest:
            raise ValueError(f"must not be below min ({lowest})")
        return value

    def compiled(self) -> Range | None:
        """The range, None if it is open on both sides: that is no criterion."""
        return None if self.min is None and self.max is None else Range(self.min, self.max)


class ContainerPatternConfig(_Section):
    """What one of the Pod's containers must be like."""

    name_regex: RegexText = ""
    reason_regex: RegexText = ""
    message_regex: RegexText = ""
    signal_range: IntRange = IntRange()
    code_range: IntRange = IntRange()

    def compiled(self) -> ContainerPattern:
        """The pattern as the machine takes it."""
        return ContainerPattern(
            name=_regex(self.name_regex),
            reason=_regex(self.reason_regex),
            message=_regex(self.message_regex),
            signal=self.signal_range.compiled(),
            code=self.code_range.compiled(),
        )


class PodPatternConfig(_Section):
    """What a failed Pod must be like."""

    name_regex: RegexText = ""
    reason_regex: RegexText = ""
    message_regex: RegexText = ""
    containers: list[ContainerPatternConfig] = Field(default_factory=list)

    def compiled(self) -> PodPattern:
        """The pattern as the machine takes it."""
        return PodPattern(
            name=_regex(self.name_regex),
            reason=_regex(self.reason_regex),
            message=_regex(self.message_regex),
            containers=tuple(container.compiled() for container in self.containers),
        )


class FailureTypeConfig(_Section):
    """What a completion code says to the retry policy. ``attributes`` None is exposed as null."""

    name: str = FAILED
    attributes: list[str] | None = None

    @field_validator("name")
    @classmethod
    def _is_failed(cls, value: str) -> str:
        # Empty is not given, as in the original.
        if value not in ("", FAILED):
            raise ValueError(f"must be {FAILED}: only failed Pods are classified")
        return FAILED


class FailureConfig(_Section):
    """One entry of podFailureSpec: a completion code, and the Pods that it is for."""

    code: Int32
    phrase: str = ""
    type: FailureTypeConfig = FailureTypeConfig()
    pod_patterns: Annotated[list[PodPatternConfig], Field(min_length=1)]

    @field_validator("code")
    @classmethod
    def _not_reserved(cls, value: int) -> int:
        for reserved in RESERVED:
            if value in reserved:
                raise ValueError(f"is within the reserved codes {reserved.start} to {reserved.stop - 1}")
        return value

    def compiled(self) -> FailureClass:
        """The entry as the machine takes it."""
        attributes = self.type.attributes
        code = Code(self.code, self.phrase, self.type.name, None if attributes is None else tuple(attributes))
        return FailureClass(code, tuple(pattern.compiled() for pattern in self.pod_patterns))


class FrameworkSnapshots(_Section):
    """When the Framework is logged whole."""

    on_framework_retry: bool = True
    on_framework_deletion: bool = True


class TaskSnapshots(_Section):
    """When a Task is logged whole."""

    on_task_retry: bool = True
    on_task_deletion: bool = True


class PodSnapshots(_Section):
    """When a Pod is logged whole."""

    on_pod_deletion: bool = True


class LogObjectSnapshot(_Section):
    """Which history snapshots are logged."""

    framework: FrameworkSnapshots = FrameworkSnapshots()
    task: TaskSnapshots = TaskSnapshots()
    pod: PodSnapshots = PodSnapshots()


class Config(_Section):
    """The whole configuration. Times are in seconds.

    ``kube_api_server_address`` and ``kube_config_file_path`` None leave it to the environment (see kube.connection).
    """

    kube_api_server_address: str | None = None
    kube_config_file_path: str | None = None
    kube_client_qps: Annotated[float, Field(gt=0, le=10000, allow_inf_nan=False, strict=False)] = DEFAULT_QPS
    kube_client_burst: Annotated[int, Field(ge=0, le=10000)] = DEFAULT_BURST
    worker_number: Annotated[int, Field(gt=0, le=_INT32_MAX)] = 200
    large_framework_compression: bool = False
    crd_established_check_interval_sec: Annotated[int, Field(ge=1, le=_INT64_MAX)] = 1
    crd_established_check_timeout_sec: Annotated[int, Field(ge=10, le=_INT64_MAX)] = 60
    object_local_cache_creation_timeout_sec: Annotated[int, Field(ge=60, le=_INT64_MAX)] = 300
    framework_completed_retain_sec: Int64 = 30 * 24 * 3600
    framework_min_retry_delay_sec_for_transient_conflict_failed: Annotated[int, Field(ge=0, le=_INT64_MAX)] = 60
    framework_max_retry_delay_sec_for_transient_conflict_failed: Annotated[
        int, Field(ge=0, le=_INT64_MAX, validate_default=True)
    ] = 900
    log_object_snapshot: LogObjectSnapshot = LogObjectSnapshot()
    pod_failure_spec: list[FailureConfig] = Field(default_factory=list)

    @field_validator("kube_client_qps", mode="before")
    @classmethod
    def _is_a_number(cls, value: Any) -> Any:
        # Not strict, so that 80 will do for 80.0; but neither text nor yes and no are numbers.
        if isinstance(value, bool | str):
            raise ValueError("must be a number")
        return value

    @field_validator("kube_api_server_address")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value:
            try:
                check_address(value, "it")
            except ConnectionConfigError as error:
                raise ValueError("must be http[s]://host:port") from error
        return value

    @field_validator("framework_max_retry_delay_sec_for_transient_conflict_failed")
    @classmethod
    def _not_below_min(cls, value: int, info: ValidationInfo) -> int:
        name = "framework_min_retry_delay_sec_for_transient_conflict_failed"
        lowest = info.data.get(name)
        if lowest is not None and value < lowest:
            raise ValueError(f"must not be below {to_camel(name)} ({lowest})")
        return value

    def snapshot_triggers(self) -> frozenset[Trigger]:
        """What makes a snapshot part of the history."""
        log = self.log_object_snapshot
        switches = {
            Trigger.FRAMEWORK_RETRY: log.framework.on_framework_retry,
            Trigger.FRAMEWORK_DELETION: log.framework.on_framework_deletion,
            Trigger.TASK_RETRY: log.task.on_task_retry,
            Trigger.TASK_DELETION: log.task.on_task_deletion,
            Trigger.POD_DELETION: log.pod.on_pod_deletion,
        }
        return frozenset(trigger for trigger, on in switches.items() if on)

    def plan_limits(self) -> Limits:
        """The bounds of the machine's decisions."""
        return Limits(
            object_local_cache_creation_timeout_sec=self.object_local_cache_creation_timeout_sec,
            framework_completed_retain_sec=self.framework_completed_retain_sec,
            framework_min_retry_delay_sec_for_transient_conflict_failed=(
                self.framework_min_retry_delay_sec_for_transient_conflict_failed
            ),
            framework_max_retry_delay_sec_for_transient_conflict_failed=(
                self.framework_max_retry_delay_sec_for_transient_conflict_failed
            ),
            classifier=Classifier([failure.compiled() for failure in self.pod_failure_spec]),
        )


def shipped_config() -> Config:
    """The configuration where nobody gave one: every default, and the podFailureSpec that ships with the package."""
    return load_config(SHIPPED_CONFIG_FILE, required=True)


def load_config(path: Path, *, required: bool) -> Config:
    """The configuration that the file gives; the shipped one if it is not there and not ``required``.

    Raises:
        ConfigError: the file cannot be read, or something in it is wrong; one line for each thing.
    """
    try:
        file = read_config_file(path)
    except ConfigMissing:
        if required:
            raise
        return shipped_config()
    problems = list(_duplicate_codes(file.content))
    try:
        config = Config.model_validate(file.content, by_name=False, by_alias=True)
    except ValidationError as error:
        problems += [_problem(detail) for detail in error.errors()]
        config = Config()
    if problems or file.problems:
        raise ConfigError(file.describe([*file.problems, *problems]))
    _warn(file, config)
    return config


def _regex(text: str) -> Regex | None:
    return compile_regex(text) if text else None


def _duplicate_codes(content: Any) -> list[Problem]:
    problems = []
    first: dict[int, int] = {}
    entries = content.get("podFailureSpec")
    for position, entry in enumerate(entries if isinstance(entries, list) else ()):
        code = entry.get("code") if isinstance(entry, dict) else None
        if type(code) is int and first.setdefault(code, position) != position:
            text = f"is already the code of podFailureSpec[{first[code]}]"
            problems.append(Problem(("podFailureSpec", position, "code"), text, code))
    return problems


def _warn(file: ConfigFile, config: Config) -> None:
    # The original takes any attribute and exposes it, so somebody may live by that; but a typo is the likelier reason.
    for position, failure in enumerate(config.pod_failure_spec):
        for attribute in failure.type.attributes or ():
            if attribute not in _KNOWN_ATTRIBUTES:
                text = f"means nothing to any retry policy{suggestion(attribute, _KNOWN_ATTRIBUTES)}"
                problem = Problem(("podFailureSpec", position, "type", "attributes"), text, attribute)
                _log.warning("%s", file.describe([problem]))


_TEXTS: Final = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "is too large",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be text (put it in quotes)",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have at least {min_length} item",
    "missing": "is required",
    "value_error": "{error}",
}


def _problem(detail: Any) -> Problem:
    path: KeyPath = detail["loc"]
    kind = detail["type"]
    if kind == "value_error":
        # A default that was found wanting goes by its name in Python.
        path = tuple(to_camel(part) if isinstance(part, str) and "_" in part else part for part in path)
    if kind in ("extra_forbidden", "invalid_key"):
        return Problem(path, f"unknown key{suggestion(str(path[-1]), _keys_at(path[:-1]))}")
    if kind == "missing":
        return Problem(path, _TEXTS[kind])
    text = _TEXTS.get(kind)
    return Problem(path, detail["msg"] if text is None else text.format(**detail.get("ctx", {})), detail["input"])


def _keys_at(path: KeyPath) -> set[str]:
    """The keys that are known in that place."""
    schema = Config.model_json_schema()
    here: dict[str, Any] = schema
    for part in path:
        here = here["items"] if isinstance(part, int) else here["properties"].get(part, {})
        while "$ref" in here or "anyOf" in here:
            here = here["anyOf"][0] if "anyOf" in here else schema["$defs"][here["$ref"].rpartition("/")[2]]
    return set(here.get("properties", ()))
