"""Frameworks as values: frozen pydantic models, and the manifests that they make.

`Framework` validates its manifest by the controller's own model of the spec, so that both say the same words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from frameworkcontroller.api import names
from frameworkcontroller.api.problems import Problem, problem_of, suggestion
from frameworkcontroller.api.spec import FrameworkSpec, check_hostnames, problems_of
from frameworkcontroller.sdk.exceptions import InvalidSpec
from frameworkcontroller.sdk.podtemplates import CONTAINER, Json, env_list, has_main, merged
from frameworkcontroller.sdk.shippedcode import Code

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


class _Value(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    def __init__(self, /, **values: Any) -> None:
        """Validate the values. Raises InvalidSpec."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InvalidSpec([self._problem(one) for one in error.errors(include_url=False)]) from None

    @classmethod
    def _problem(cls, detail: ErrorDetails) -> Problem:
        if detail["type"] == "extra_forbidden":
            name = str(detail["loc"][-1])
            return Problem(detail["loc"], f"is no field of {cls.__name__}{suggestion(name, cls.model_fields)}")
        return problem_of(detail, names.RULES)

    def replaced(self, **changes: Any) -> Self:
        """Return a copy with other values for these fields."""
        return type(self)(**{**{name: getattr(self, name) for name in type(self).model_fields}, **changes})


class Resources(_Value):
    """Requests of the container of each Task. ``cpu``: cores; ``memory``: a quantity such as "4Gi".

    ``gpus`` of ``gpu_resource`` are a request and a limit, as Kubernetes demands. Other limits: ``Role.pod``.
    """

    cpu: float | str | None = None
    memory: str | None = None
    gpus: int = Field(default=0, ge=0)
    gpu_resource: str = names.GPU

    def to_dict(self) -> Json:
        """Return Kubernetes' ``resources``; empty if nothing is requested."""
        requests = {key: str(value) for key in ("cpu", "memory") if (value := getattr(self, key)) is not None}
        limits = {self.gpu_resource: str(self.gpus)} if self.gpus else {}
        found = {"requests": requests | limits, "limits": limits}
        return {key: value for key, value in found.items() if value}


class Retry(_Value):
    """How often an attempt is retried after failures. -1: without limit; -2: also after success.

    ``fancy``: transient failures are retried without limit, permanent ones never. ``base_seconds``: delay before the
    first retry, doubled for each further one in a row, up to ``max_seconds``; None: the controller's default.
    """

    times: int = Field(default=0, ge=-2)
    fancy: bool = False
    base_seconds: int | None = Field(default=None, ge=0)
    max_seconds: int | None = Field(default=None, ge=0)

    def __init__(self, times: int = 0, /, **values: Any) -> None:
        """``Retry(3)``."""
        super().__init__(**{"times": times, **values})

    def to_dict(self) -> Json:
        """Return the spec's ``retryPolicy``."""
        found: Json = {"fancyRetryPolicy": self.fancy, "maxRetryCount": self.times}
        limits = {"baseSeconds": self.base_seconds, "maxSeconds": self.max_seconds}
        if backoff := {key: value for key, value in limits.items() if value is not None}:
            found["backoff"] = backoff
        return found


class Completion(_Value):
    """How many failed or succeeded Tasks of a role end the attempt; -1: never. It ends in any case once all have."""

    min_failed: int = Field(default=1, ge=-1)
    min_succeeded: int = Field(default=-1, ge=-1)

    def to_dict(self) -> Json:
        """Return the spec's ``frameworkAttemptCompletionPolicy``."""
        return {"minFailedTaskCount": self.min_failed, "minSucceededTaskCount": self.min_succeeded}


class Progress(_Value):
    """The Tasks report progress, by `report` or a library that does; seconds. ``interval``: between stored reports.

    ``deadline``: without progress, after which the attempt ends with -252. ``start_deadline``: until the first report.
    """

    deadline: int | None = Field(default=None, ge=1)
    start_deadline: int | None = Field(default=None, ge=1)
    interval: int | None = Field(default=None, ge=1, le=3600)

    def to_dict(self) -> Json:
        """Return the spec's ``progress``."""
        return {key: value for field, key in _PROGRESS.items() if (value := getattr(self, field)) is not None}


class Claim(_Value):
    """A PersistentVolumeClaim for each Task of a role, mounted at ``path``. It outlives its Pods."""

    name: str
    size: str
    path: str
    storage_class: str | None = None
    access_mode: str = "ReadWriteOnce"

    def to_dict(self) -> Json:
        """Return the spec's volumeClaimTemplate."""
        spec: Json = {"accessModes": [self.access_mode], "resources": {"requests": {"storage": self.size}}}
        if self.storage_class is not None:
            spec["storageClassName"] = self.storage_class
        return {"metadata": {"name": self.name}, "spec": spec}


class Role(_Value):
    """A group of equal Tasks. Each is a Pod with a container "main".

    ``command``: program and arguments. Placeholders such as ``{{FC_TASK_INDEX}}`` are replaced in all texts.
    ``image`` None: the local cluster needs none. ``depends_on``: roles that must be "Ready", or "Complete", before.
    ``pod``: merged into the Pod template last, and ``extra`` into the TaskRole: mappings by key, named items by name;
    None removes a field.
    """

    name: str = "worker"
    tasks: int = 1
    image: str | None = None
    command: Sequence[str] = ()
    env: Mapping[str, str] = Field(default_factory=dict)
    resources: Resources = Resources()
    retry: Retry = Retry(0)
    completion: Completion = Completion()
    claims: Sequence[Claim] = ()
    depends_on: Mapping[str, Literal["Ready", "Complete"]] = Field(default_factory=dict)
    pod: Mapping[str, Any] = Field(default_factory=dict)
    extra: Mapping[str, Any] = Field(default_factory=dict)

    @field_validator("command", mode="before")
    @classmethod
    def _is_a_list(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError('must be a list of texts, such as ["python", "train.py"]')
        return value

    def to_dict(self, code: Code | None = None) -> Json:
        """Return the spec's TaskRole."""
        pod = merged(self._template(), self.pod)
        if code is not None and has_main(pod):
            try:
                pod = code.on_path(merged(code.mounted(pod), self.pod))
            except (AttributeError, LookupError, TypeError):
                problem = Problem(("roles", self.name, "pod"), "is no Pod template, so that code cannot be added")
                raise InvalidSpec([problem]) from None
        found: Json = {
            "name": self.name,
            "taskNumber": self.tasks,
            "frameworkAttemptCompletionPolicy": self.completion.to_dict(),
            "task": {"retryPolicy": self.retry.to_dict(), "pod": pod},
        }
        if self.claims:
            found["volumeClaimTemplates"] = [claim.to_dict() for claim in self.claims]
        if self.depends_on:
            found["dependsOn"] = [{"name": name, "status": status} for name, status in self.depends_on.items()]
        changed: Json = merged(found, self.extra)
        return changed

    def _template(self) -> Json:
        """Return the Pod template without ``pod``."""
        container: Json = {"name": CONTAINER}
        if self.image is not None:
            container["image"] = self.image
        if self.command:
            container["command"] = list(self.command)
        if self.env:
            container["env"] = env_list(self.env)
        if resources := self.resources.to_dict():
            container["resources"] = resources
        if self.claims:
            container["volumeMounts"] = [{"name": claim.name, "mountPath": claim.path} for claim in self.claims]
        if len(container) == 1:
            return {"spec": {}}
        return {"spec": {"restartPolicy": "Never", "containers": [container]}}

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Role:
        """Read a TaskRole of a spec. Its Pod template becomes ``pod``."""
        task = dict(body.get("task") or {})
        policy, retry = body.get("frameworkAttemptCompletionPolicy"), task.pop("retryPolicy", None)
        pod = task.pop("pod", None) or {}
        known = ("name", "taskNumber", "frameworkAttemptCompletionPolicy", "task", "dependsOn")
        extra: Json = {key: value for key, value in body.items() if key not in known}
        values: Json = {"completion": _completion(policy), "retry": _retry(retry)}
        # Values that these classes cannot express stay as they are; None removes a default.
        if values["completion"] is None:
            values.pop("completion")
            extra["frameworkAttemptCompletionPolicy"] = _instead(Completion().to_dict(), policy)
        if values["retry"] is None:
            values.pop("retry")
            task["retryPolicy"] = _instead(Retry().to_dict(), retry)
        if task:
            extra["task"] = task
        if dependencies := body.get("dependsOn"):
            values["depends_on"] = {one["name"]: one["status"] for one in dependencies}
        return cls(name=body["name"], tasks=body.get("taskNumber", 1), pod=pod, extra=extra, **values)


class Framework(_Value):
    """A job: roles of Tasks that run, are retried and end together.

    ``name``: lower case letters and digits; ``generate_name``: a prefix of it instead. ``retry``: of the whole.
    ``queue``, ``priority``: a LocalQueue of Kueue, and a WorkloadPriorityClass. ``gang``: all Pods start, or none.
    ``deadline``: seconds for all attempts together. ``ttl``: seconds until it is deleted after its end. ``network``:
    Pods have host names. ``coordinator``: ``"worker"`` or ``"worker/0"``, the Task of ``{{FC_COORDINATOR_HOST}}``.
    ``progress``: its Tasks report progress.
    ``objects``: ConfigMaps and Secrets that are created and deleted with it. ``extra``: merged into the spec last.
    """

    name: str | None = None
    generate_name: str | None = None
    roles: Sequence[Role] = ()
    retry: Retry = Retry(0)
    queue: str | None = None
    priority: str | None = None
    gang: bool = False
    deadline: int | None = None
    ttl: int | None = None
    network: bool = False
    coordinator: str | None = None
    progress: Progress | None = None
    code: Code | None = None
    labels: Mapping[str, str] = Field(default_factory=dict)
    annotations: Mapping[str, str] = Field(default_factory=dict)
    objects: Sequence[Mapping[str, Any]] = ()
    extra: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_a_name(self) -> Self:
        if (self.name is None) == (self.generate_name is None):
            raise ValueError("must have a name or a generate_name, and not both")
        return self

    def role(self, name: str) -> Role:
        """Return the role of that name. Raises LookupError."""
        for one in self.roles:
            if one.name == name:
                return one
        raise LookupError(f"the Framework has no role {name!r}")

    def to_dict(self) -> Json:
        """Return the manifest.

        Raises:
            InvalidSpec: the controller would refuse it.
        """
        body = self._manifest()
        _check(body)
        if self.code is not None and not any(has_main(role["task"]["pod"]) for role in body["spec"]["taskRoles"]):
            raise InvalidSpec([Problem(("code",), f'needs a role with a container named "{CONTAINER}"')])
        return body

    def all_objects(self) -> list[Json]:
        """Return ``objects``, and the ConfigMap of ``code`` if it has one."""
        found: list[Json] = [dict(one) for one in self.objects]
        if self.code is not None and self.code.configmap:
            found.append(self.code.manifest())
        return found

    def to_yaml(self) -> str:
        """Return the manifests of Framework and objects, for ``kubectl apply -f``. Raises InvalidSpec as `to_dict`."""
        import yaml

        from frameworkcontroller.api.yamldocuments import dumper

        bodies = [self.to_dict(), *self.all_objects()]
        text: str = yaml.dump_all(
            bodies, Dumper=dumper(), sort_keys=False, default_flow_style=False, width=120, allow_unicode=True
        )
        return text

    def problems(self) -> list[Problem]:
        """Return the findings of ``lint``: broken rules of the controller and the API server, and likely mistakes."""
        from frameworkcontroller.commands.lint.frameworks import check_framework

        try:
            body = self._manifest()
        except InvalidSpec as error:
            return list(error.problems)
        return [finding.problem for finding in check_framework(body)]

    @classmethod
    def from_yaml(cls, text: str) -> Framework:
        """Read the manifest of one Framework. Other documents become ``objects``; ``code`` stays a part of the Pods.

        Raises:
            InvalidSpec: it is no YAML, or no valid Framework.
        """
        from frameworkcontroller.api.yamldocuments import ERRORS, documents, error_text

        try:
            bodies = [body for body, _ in documents(text) if body is not None]
        except ERRORS as error:
            raise InvalidSpec([Problem((), error_text(error)[1])]) from None
        ours = [one for one in bodies if isinstance(one, dict) and one.get("kind") == names.KIND]
        if len(ours) != 1 or not all(isinstance(one, dict) for one in bodies):
            raise InvalidSpec([Problem((), f"must have one object of kind {names.KIND}, and has {len(ours)}")])
        return cls.from_dict(ours[0], [one for one in bodies if one is not ours[0]])

    @classmethod
    def from_dict(cls, body: Mapping[str, Any], objects: Sequence[Mapping[str, Any]] = ()) -> Framework:
        """Read a manifest. Fields that have no name here go to ``extra`` and ``Role.pod``. Raises InvalidSpec."""
        if (body.get("apiVersion"), body.get("kind")) != (names.API_VERSION, names.KIND):
            raise InvalidSpec([Problem(("kind",), f"must be {names.KIND} of {names.API_VERSION}")])
        metadata, spec = body.get("metadata") or {}, body.get("spec") or {}
        _check({"metadata": metadata, "spec": spec})
        extra = {key: value for key, value in spec.items() if key not in ("taskRoles", "retryPolicy")}
        values: Json = {"retry": _retry(spec.get("retryPolicy"))}
        if values["retry"] is None:
            values.pop("retry")
            extra["retryPolicy"] = _instead(Retry().to_dict(), spec.get("retryPolicy"))
        for field, key in _FIELDS.items():
            if extra.get(key) is not None:
                values[field] = extra.pop(key)
        if (progress := _progress(spec.get("progress"))) is not None:
            values["progress"] = progress
            del extra["progress"]
        labels = dict(metadata.get("labels") or {})
        for field, label in _LABELS.items():
            if label in labels:
                values[field] = labels.pop(label)
        return cls(
            name=metadata.get("name"),
            generate_name=metadata.get("generateName"),
            roles=[Role.from_dict(one) for one in spec.get("taskRoles") or ()],
            labels=labels,
            annotations=metadata.get("annotations") or {},
            objects=objects,
            extra=extra,
            **values,
        )

    def _manifest(self) -> Json:
        metadata: Json = {"name": self.name} if self.name is not None else {"generateName": self.generate_name}
        labels = {label: value for field, label in _LABELS.items() if (value := getattr(self, field)) is not None}
        for key, texts in (("labels", {**self.labels, **labels}), ("annotations", dict(self.annotations))):
            if texts:
                metadata[key] = texts
        spec: Json = {key: value for field, key in _FIELDS.items() if (value := getattr(self, field)) is not None}
        if self.network:
            spec["network"] = {}
        if self.coordinator is not None:
            role, _, index = self.coordinator.partition("/")
            spec["coordinator"] = {"taskRole": role, "taskIndex": int(index) if index.isdecimal() else index or 0}
        if self.progress is not None:
            spec["progress"] = self.progress.to_dict()
        if self.gang:
            spec["scheduling"] = {"schedulingPolicy": {"gang": {}}}
        spec["retryPolicy"] = self.retry.to_dict()
        spec["taskRoles"] = [role.to_dict(self.code) for role in self.roles]
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": metadata,
            "spec": merged(spec, self.extra),
        }


_FIELDS: Final = {"deadline": "activeDeadlineSeconds", "ttl": "ttlSecondsAfterFinished"}
_PROGRESS: Final = {
    "deadline": "deadlineSeconds",
    "start_deadline": "startDeadlineSeconds",
    "interval": "intervalSeconds",
}
_LABELS: Final = {"queue": names.QUEUE_NAME, "priority": names.PRIORITY_CLASS}


def _check(body: Json) -> None:
    """Raise InvalidSpec unless the controller accepts the name and the spec."""
    if found := [*_name_problems(body["metadata"]), *_spec_problems(body["metadata"].get("name"), body["spec"])]:
        raise InvalidSpec(found)


def _spec_problems(name: str | None, spec: Any) -> Iterator[Problem]:
    try:
        parsed = FrameworkSpec.model_validate(spec, by_name=False, by_alias=True)
    except ValidationError as error:
        yield from problems_of(error, spec)
        return
    if name is not None and (found := check_hostnames(name, parsed)) is not None:
        yield found


def _name_problems(metadata: Mapping[str, Any]) -> Iterator[Problem]:
    name, prefix = metadata.get("name"), metadata.get("generateName")
    if name is not None and not (isinstance(name, str) and names.is_valid_name(name)):
        yield Problem(("metadata", "name"), names.NAME_RULE, name)
    elif name is None and not (isinstance(prefix, str) and names.is_valid_name(f"{prefix}xxxxx")):
        yield Problem(("metadata", "generateName"), f"and 5 characters more {names.NAME_RULE}", prefix)


def _completion(policy: Any) -> Completion | None:
    """Return the policy, if it has both fields and no other."""
    if isinstance(policy, Mapping) and policy.keys() == {"minFailedTaskCount", "minSucceededTaskCount"}:
        return Completion(min_failed=policy["minFailedTaskCount"], min_succeeded=policy["minSucceededTaskCount"])
    return None


def _retry(policy: Any) -> Retry | None:
    """Return the policy, if it has the fields that `Retry.to_dict` writes."""
    if not isinstance(policy, Mapping):
        return None
    backoff = policy.get("backoff", {})
    if not isinstance(backoff, Mapping) or ("backoff" in policy and not backoff):
        return None
    made = Retry(
        policy.get("maxRetryCount", 0),
        fancy=policy.get("fancyRetryPolicy", False),
        base_seconds=backoff.get("baseSeconds"),
        max_seconds=backoff.get("maxSeconds"),
    )
    return made if made.to_dict() == policy else None


def _progress(body: Any) -> Progress | None:
    """Return the spec's ``progress``, if it has no other fields than these."""
    if not isinstance(body, Mapping) or not body.keys() <= set(_PROGRESS.values()):
        return None
    return Progress(**{field: body.get(key) for field, key in _PROGRESS.items()})


def _instead(written: Json, wanted: Any) -> Any:
    """Return the change that merges ``written`` to ``wanted``."""
    return None if wanted is None else {**dict.fromkeys(written), **wanted}
