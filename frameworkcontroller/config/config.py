"""The configuration: its keys, bounds and defaults.

Source: docs/configuration.md. The keys are the original's. A file with unknown keys or bad values is rejected with all
its errors, each with key and value. Null means the default. Without a file, the shipped one applies: the original's
image contains a file too, and clients know its completion codes.
"""

from __future__ import annotations

import logging
from dataclasses import fields, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel, to_pascal

from frameworkcontroller.api import names
from frameworkcontroller.api.completion import CONFLICT, PERMANENT, TRANSIENT
from frameworkcontroller.api.failurespec import FailureClass
from frameworkcontroller.api.inputmodel import INT32_MAX, INT64_MAX, Section, below, not_below, whole
from frameworkcontroller.api.podgroups import GangScheduler
from frameworkcontroller.api.problems import KeyPath, Problem, problem_of, suggestion
from frameworkcontroller.config.bindaddress import BindAddress, parse_bind_address
from frameworkcontroller.config.configfile import ConfigFile, ConfigurationError, read_config_file
from frameworkcontroller.config.historyconfig import History
from frameworkcontroller.kube.connection import check_address
from frameworkcontroller.kube.elector import JITTER, Timing
from frameworkcontroller.kube.errors import ConnectionConfigError
from frameworkcontroller.machine.kernel.failure import Classifier
from frameworkcontroller.machine.kernel.model import Limits, SnapshotTrigger

__all__ = ["Config", "ConfigurationError", "load_config", "shipped_config"]

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_log: Final = logging.getLogger(__name__)

DEFAULT_CONFIG_FILE: Final = "frameworkcontroller.yaml"

SHIPPED_CONFIG_FILE: Final = Path(__file__).with_name("default-config.yaml")

_KNOWN_ATTRIBUTES: Final = frozenset({TRANSIENT, CONFLICT, PERMANENT})

_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_ABSOLUTE: Final = r"^/"
_DNS_NAME: Final = "must be a DNS name: lower-case letters, digits and '-'"
_RULES: Final = {_LABEL: _DNS_NAME, names.SUBDOMAIN_PATTERN: _DNS_NAME, _ABSOLUTE: "must be an absolute path"}
"""The patterns in words."""

PROGRESS_SERVICE: Final = "frameworkcontroller-progress"
"""The Service of the report servers of all replicas (manifests/components/progress)."""

_HTTPS_RULE: Final = "must be https://host:port"

Namespace = Annotated[str, Field(pattern=_LABEL, max_length=63)]


def _checked_address(value: Any) -> Any:
    # An unquoted 0 is a number in YAML.
    if type(value) is int and value == 0:
        return ""
    if isinstance(value, str):
        parse_bind_address(value)
    return value


class FrameworkSnapshots(Section):
    """Events at which a snapshot of the Framework is logged."""

    on_framework_retry: bool = True
    on_framework_deletion: bool = True


class TaskSnapshots(Section):
    """Events at which a snapshot of the Task is logged."""

    on_task_retry: bool = True
    on_task_deletion: bool = True


class PodSnapshots(Section):
    """Events at which a snapshot of the Pod is logged."""

    on_pod_deletion: bool = True


class LogObjectSnapshot(Section):
    """The snapshots that are logged as the history."""

    framework: FrameworkSnapshots = FrameworkSnapshots()
    task: TaskSnapshots = TaskSnapshots()
    pod: PodSnapshots = PodSnapshots()


class LeaderElection(Section):
    """Leader election by a Lease. Times are in seconds, with the defaults and bounds of client-go.

    Off by default, because the original needs neither permissions nor a namespace for a Lease. Two controllers without
    leader election do everything twice, but do no harm (docs/guarantees.md).
    """

    enabled: bool = False
    lease_name: Annotated[str, Field(pattern=names.SUBDOMAIN_PATTERN, max_length=253)] = "frameworkcontroller"
    lease_namespace: Namespace | None = None
    lease_duration_sec: Annotated[int, Field(ge=1, le=INT32_MAX)] = 15
    renew_deadline_sec: Annotated[
        int, Field(ge=1, le=INT32_MAX, validate_default=True), below("lease_duration_sec")
    ] = 10
    retry_period_sec: Annotated[
        int, Field(ge=1, le=INT32_MAX, validate_default=True), below("renew_deadline_sec", JITTER)
    ] = 2
    lock_file: Annotated[str, Field(pattern=_ABSOLUTE)] | None = None

    def timing(self) -> Timing:
        """The times, as the elector takes them."""
        return Timing(self.lease_duration_sec, self.renew_deadline_sec, self.retry_period_sec)


class KueueMode(StrEnum):
    """Whether the queue labels of Frameworks count."""

    DISABLED = "disabled"
    ENABLED = "enabled"


class Kueue(Section):
    """Queues of Kueue. Disabled by default: labels on existing Frameworks would change their meaning."""

    mode: Annotated[KueueMode, Field(strict=False)] = KueueMode.DISABLED


class ProgressReports(Section):
    """The server to which Pods report their progress. ``bind_address`` "": none.

    ``url``: of the server, for Pods; "": the address itself if it is on loopback, else the Service in the controller's
    namespace.
    """

    bind_address: str = ""
    url: Annotated[str, Field(max_length=512)] = ""

    @field_validator("bind_address", mode="before")
    @classmethod
    def _is_a_bind_address(cls, value: Any) -> Any:
        return _checked_address(value)

    @field_validator("url")
    @classmethod
    def _is_an_https_url(cls, value: str) -> str:
        if value:
            try:
                check_address(value, "it")
            except ConnectionConfigError as error:
                raise ValueError(_HTTPS_RULE) from error
            if not value.startswith("https://"):
                raise ValueError(_HTTPS_RULE)
        return value

    @property
    def address(self) -> BindAddress | None:
        """The address to listen on; None: no server."""
        return parse_bind_address(self.bind_address)

    def url_in(self, namespace: str) -> str | None:
        """The URL for Pods. ``namespace``: the controller's. None: the address itself."""
        address = self.address
        if self.url or address is None or address.is_loopback:
            return self.url or None
        return f"https://{PROGRESS_SERVICE}.{namespace}.svc"


class Config(Section):
    """The whole configuration. Times are in seconds.

    ``kube_api_server_address`` and ``kube_config_file_path``: None takes the value from the environment, "" is none
    (see kube.connection). ``namespace`` None: all.
    """

    kube_api_server_address: str | None = None
    kube_config_file_path: str | None = None
    namespace: Namespace | None = None
    leader_election: LeaderElection = LeaderElection()
    kube_client_qps: Annotated[float, Field(gt=0, le=10000, allow_inf_nan=False)] = 1000.0
    kube_client_burst: Annotated[int, Field(ge=0, le=10000)] = 1000
    """About the capacity of an API server on two cores (docs/performance.md). A slower one is protected by the bound on
    requests in flight, by its own priority and fairness, and by its 429s. With the original's defaults, 80 and 120,
    1,000 Pods take 11 s."""
    worker_number: Annotated[int, Field(gt=0, le=INT32_MAX)] = 200
    large_framework_compression: bool = False
    web_address: str = ":10280"
    """All addresses, because Prometheus and the kubelet connect from other Pods and hosts."""
    web_debug: bool = False
    crd_established_check_interval_sec: Annotated[int, Field(ge=1, le=INT64_MAX)] = 1
    crd_established_check_timeout_sec: Annotated[int, Field(ge=10, le=INT64_MAX)] = 60
    object_local_cache_creation_timeout_sec: Annotated[int, Field(ge=60, le=INT64_MAX)] = 300
    framework_completed_retain_sec: Annotated[int, Field(ge=-INT64_MAX - 1, le=INT64_MAX)] = 30 * 24 * 3600
    framework_min_retry_delay_sec_for_transient_conflict_failed: Annotated[int, Field(ge=0, le=INT64_MAX)] = 60
    framework_max_retry_delay_sec_for_transient_conflict_failed: Annotated[
        int,
        Field(ge=0, le=INT64_MAX, validate_default=True),
        not_below("framework_min_retry_delay_sec_for_transient_conflict_failed"),
    ] = 900
    task_min_retry_delay_sec: Annotated[int, Field(ge=0, le=INT32_MAX)] = 10
    task_max_retry_delay_sec: Annotated[
        int, Field(ge=0, le=INT32_MAX, validate_default=True), not_below("task_min_retry_delay_sec")
    ] = 360
    gang_scheduler: Annotated[GangScheduler, Field(strict=False)] = GangScheduler.AUTO
    gang_scheduler_name: Annotated[str, Field(pattern=names.SUBDOMAIN_PATTERN, max_length=253)] | None = None
    log_object_snapshot: LogObjectSnapshot = LogObjectSnapshot()
    record_events: bool = True
    history: History = History()
    kueue: Kueue = Kueue()
    progress_reports: ProgressReports = ProgressReports()
    pod_failure_spec: list[FailureClass] = Field(default_factory=list)

    @field_validator("kube_api_server_address")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value:
            try:
                check_address(value, "it")
            except ConnectionConfigError as error:
                raise ValueError("must be http[s]://host:port") from error
        return value

    @field_validator("web_address", mode="before")
    @classmethod
    def _is_a_bind_address(cls, value: Any) -> Any:
        return _checked_address(value)

    @field_validator("pod_failure_spec", mode="before")
    @classmethod
    def _is_the_shipped_one(cls, value: Any) -> Any:
        # It may change with the version.
        return read_config_file(SHIPPED_CONFIG_FILE).content["podFailureSpec"] if value == "shipped" else value

    @property
    def web(self) -> BindAddress | None:
        """The address of the web server; None: no web server."""
        return parse_bind_address(self.web_address)

    def lease_namespace(self, usual: str | None) -> str:
        """The namespace of the Lease. ``usual``: the namespace of the controller's Pod, or of the kubeconfig's context.

        Raises:
            ConfigurationError: no namespace is known.
        """
        namespace = self.leader_election.lease_namespace or usual or self.namespace
        if namespace is None:
            raise ConfigurationError(
                "leaderElection.leaseNamespace is required outside a Pod if the context of the kubeconfig has no "
                "namespace"
            )
        return namespace

    def snapshot_triggers(self) -> frozenset[SnapshotTrigger]:
        """The events at which a snapshot is logged."""
        log = self.log_object_snapshot
        # The keys are the names of the events, in camelCase.
        switches = [switch for section in (log.framework, log.task, log.pod) for switch in section]
        return frozenset(SnapshotTrigger(to_pascal(name)) for name, on in switches if on)

    def plan_limits(self) -> Limits:
        """The limits that the machine decides by."""
        configured = {field.name for field in fields(Limits)} & type(self).model_fields.keys() - {"kueue", "history"}
        has_queues = self.kueue.mode is KueueMode.ENABLED
        return Limits(
            classifier=Classifier(self.pod_failure_spec),
            kueue=has_queues,
            history=self.history.sink_triggers,
            history_blocks=self.history.blocks,
            keep_logs=self.history.kept_logs,
            log_capture_sec=self.history.logs.capture_seconds,
            **{name: getattr(self, name) for name in configured},
        )


def shipped_config() -> Config:
    """The configuration without a file: every default, and the shipped podFailureSpec."""
    return load_config(SHIPPED_CONFIG_FILE, required=True)


def load_config(path: Path, *, required: bool) -> Config:
    """The configuration in the file. If the file does not exist and is not ``required``, the shipped configuration.

    Raises:
        ConfigurationError: the file cannot be read or is invalid; the text has one line for each error.
    """
    try:
        file = read_config_file(path)
    except FileNotFoundError:
        if required:
            raise ConfigurationError(f"{path}: no such file") from None
        return shipped_config()
    problems = _duplicate_codes(file.content)
    try:
        config = Config.model_validate(file.content, by_name=False, by_alias=True)
    except ValidationError as error:
        problems += [_problem(detail) for detail in error.errors()]
        config = Config()
    if problems or file.problems:
        raise ConfigurationError(file.describe([*file.problems, *problems]))
    _warn(file, config)
    return config


def _duplicate_codes(content: Any) -> list[Problem]:
    problems = []
    first: dict[int, int] = {}
    entries = content.get("podFailureSpec")
    for position, entry in enumerate(entries if isinstance(entries, list) else ()):
        code = whole(entry.get("code")) if isinstance(entry, dict) else None
        if type(code) is int and first.setdefault(code, position) != position:
            text = f"is already the code of podFailureSpec[{first[code]}]"
            problems.append(Problem(("podFailureSpec", position, "code"), text, code))
    return problems


def _warn(file: ConfigFile, config: Config) -> None:
    # Not an error: the original accepts and exposes any attribute. But it is probably a typo.
    for position, failure in enumerate(config.pod_failure_spec):
        for attribute in failure.type.attributes or ():
            if attribute not in _KNOWN_ATTRIBUTES:
                text = f"is ignored by all retry policies{suggestion(attribute, _KNOWN_ATTRIBUTES)}"
                problem = Problem(("podFailureSpec", position, "type", "attributes"), text, attribute)
                _log.warning("%s", file.describe([problem]))


def _problem(detail: ErrorDetails) -> Problem:
    path: KeyPath = detail["loc"]
    if detail["type"] in ("extra_forbidden", "invalid_key"):
        return Problem(path, f"unknown key{suggestion(str(path[-1]), _keys_at(path[:-1]))}")
    problem = problem_of(detail, _RULES)
    if detail["type"] == "value_error":
        # For a default, pydantic gives the name of the field in Python.
        path = tuple(to_camel(part) if isinstance(part, str) and "_" in part else part for part in path)
    return replace(problem, path=path)


def _keys_at(path: KeyPath) -> set[str]:
    """The known keys of the mapping at ``path``."""
    schema = Config.model_json_schema()
    here: dict[str, Any] = schema
    for part in path:
        here = here["items"] if isinstance(part, int) else here["properties"].get(part, {})
        while "$ref" in here or "anyOf" in here:
            here = here["anyOf"][0] if "anyOf" in here else schema["$defs"][here["$ref"].rpartition("/")[2]]
    return set(here.get("properties", ()))
