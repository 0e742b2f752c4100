"""The TorchX scheduler: `torchx run --scheduler frameworkcontroller` (docs/torchx.md).

TorchX finds it by the name of this package, which other distributions share, and before autumn 2026 by the entry point
`torchx.schedulers`.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import entry_points
from typing import Any, Final, List  # noqa: UP035 - see run_opts
from urllib.parse import quote, unquote

from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler, Stream
from torchx.specs import (
    NONE,
    AppDef,
    AppDryRunInfo,
    AppState,
    BindMount,
    DeviceMount,
    ReplicaStatus,
    Resource,
    RetryPolicy,
    RoleStatus,
    macros,
    runopts,
)
from torchx.specs import Role as AppRole

from frameworkcontroller.api.names import (
    COORDINATOR_HOST,
    FRAMEWORK_NAME,
    GPU,
    MAX_HOSTNAME,
    TASK_INDEX,
    placeholder,
    pod_name,
)
from frameworkcontroller.api.quantities import parse_quantity
from frameworkcontroller.api.status import Phase
from frameworkcontroller.sdk.definitions import Completion, Framework, Resources, Retry, Role
from frameworkcontroller.sdk.exceptions import NotFound
from frameworkcontroller.sdk.podtemplates import CONTAINER, Json, merged
from frameworkcontroller.sdk.runstatus import Status, TaskStatus
from frameworkcontroller.sdk.shippedcode import Code
from frameworkcontroller.sdk.syncclient import Cluster, Run, connect

NAME: Final = "frameworkcontroller"

APP_NAME: Final = "torchx.pytorch.org/app-name"
"""Annotation and label: the name of the app. The label has only the characters that Kubernetes permits in one."""
ROLE_NAMES: Final = "torchx.pytorch.org/role-names"
"""Annotation: a JSON object of the app's names of roles, by names of TaskRoles."""

RANK0_HOST: Final = "TORCHX_RANK0_HOST"
"""The variable that `macros.rank0_env` names, as with TorchX's own schedulers."""

_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
_SUFFIX: Final = 5
"""Characters that the API server adds to a generated name."""
_MAX_NAME: Final = 40
_MAX_ROLE: Final = 20
_MB: Final = 1000**2

_STATES: Final = {
    Phase.PENDING: AppState.PENDING,
    Phase.QUEUED: AppState.PENDING,
    Phase.SUSPENDED: AppState.PENDING,
    Phase.RUNNING: AppState.RUNNING,
    Phase.ENDING: AppState.RUNNING,
    Phase.SUCCEEDED: AppState.SUCCEEDED,
    Phase.FAILED: AppState.FAILED,
    Phase.STOPPED: AppState.CANCELLED,
}


@dataclass
class Request:
    """A Framework to submit. ``context``, ``kubeconfig`` and ``namespace``: None as kubectl would choose them."""

    framework: Framework
    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None

    def __str__(self) -> str:
        return self.framework.to_yaml()


class FrameworkScheduler(Scheduler):
    """Runs each app as a Framework, and each role as a TaskRole.

    The id of an app is ``NAMESPACE:FRAMEWORK``, or ``CONTEXT:NAMESPACE:FRAMEWORK`` if it was run with a context. An id
    without namespace is of the kubeconfig's namespace, and in a Pod of its own.
    """

    def __init__(self, session_name: str) -> None:
        """Use `create_scheduler`."""
        super().__init__(NAME, session_name)
        self._clusters: dict[tuple[str | None, ...], Cluster] = {}
        self._kubeconfigs: dict[str, str | None] = {}
        """By id of an app, for this process: ids do not contain it."""
        self._connecting = threading.Lock()

    def close(self) -> None:
        """Close the connections."""
        with self._connecting:
            for cluster in self._clusters.values():
                cluster.close()
            self._clusters.clear()

    def run_opts(self) -> runopts:
        """Return the options of ``torchx run -cfg``."""
        opts = runopts()
        opts.add("namespace", type_=str, default=None, help="namespace, by default the kubeconfig's")
        opts.add("queue", type_=str, default=None, help="Kueue's LocalQueue that admits the app")
        opts.add("priority", type_=str, default=None, help="Kueue's WorkloadPriorityClass")
        opts.add("gang", type_=bool, default=False, help="start all Pods together, or none")
        # torchx 0.7 knows no other type for a list.
        opts.add("code", type_=List[str], default=None, help="files and folders for the working directory")  # noqa: UP006
        opts.add("context", type_=str, default=None, help="context of the kubeconfig")
        opts.add("kubeconfig", type_=str, default=None, help="path of a kubeconfig; other commands read $KUBECONFIG")
        return opts

    # TorchX before autumn 2026 calls it without cfg.
    def _validate(self, app: AppDef, scheduler: str, cfg: Any = None) -> None:
        """Accept roles without resources."""

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, Any]) -> AppDryRunInfo:
        where = {key: cfg.get(key) for key in ("namespace", "context", "kubeconfig")}
        return AppDryRunInfo(Request(framework_of(app, cfg), **where), str)

    def schedule(self, dryrun_info: AppDryRunInfo) -> str:
        """Create the Framework. Return its id."""
        request: Request = dryrun_info.request
        run = self._cluster(request.context, request.namespace, request.kubeconfig).submit(request.framework)
        app_id = _id(request.context, run)
        self._kubeconfigs[app_id] = request.kubeconfig
        return app_id

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return roles and states, None if there is no such Framework."""
        try:
            run = self._run(app_id)
        except NotFound:
            return None
        status = run.status
        names = _names(status.object)
        return DescribeAppResponse(
            app_id=app_id,
            state=_STATES[status.phase],
            num_restarts=status.retries,
            msg=status.message or NONE,
            roles=[_role(role, names, status.object) for role in status.object["spec"]["taskRoles"]],
            roles_statuses=[_role_status(role, names, status) for role in status.object["spec"]["taskRoles"]],
        )

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        """Return all Frameworks of the namespace, also those that TorchX has not made."""
        cfg = cfg or {}
        context = cfg.get("context")
        cluster = self._cluster(context, cfg.get("namespace"), cfg.get("kubeconfig"))
        found = []
        for run in cluster.list():
            one = ListAppResponse(app_id=_id(context, run), state=_STATES[run.status.phase])
            one.name = _app_name(run.status.object)
            found.append(one)
        return found

    def _cancel_existing(self, app_id: str) -> None:
        with suppress(NotFound):
            run = self._run(app_id)
            if not run.status.is_final:
                run.stop()

    def _delete_existing(self, app_id: str) -> None:
        with suppress(NotFound):
            self._run(app_id).delete(wait=False)

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterator[str]:
        """Yield the lines of a replica's last attempt, of Pods that are gone from the archive.

        Lines of the archive have no time: ``since`` and ``until`` keep them. ``should_tail``: follow the log until the
        app ends, including later attempts.

        Raises:
            ValueError: there is no such role, or ``streams`` is not ``combined``: Kubernetes has one stream.
        """
        if streams not in (None, Stream.COMBINED):
            raise ValueError("Kubernetes has one log for stdout and stderr: use the stream `combined`")
        run = self._run(app_id)
        roles = {original: name for name, original in _names(run.status.object).items()}
        if role_name not in roles:
            raise ValueError(f"{app_id} has no role `{role_name}`, but {', '.join(f'`{name}`' for name in roles)}")
        lines = run.logs(role=roles[role_name], task=k, follow=should_tail)
        return _filtered(((line.time, line.text) for line in lines), regex, since, until)

    def _cluster(self, context: str | None, namespace: str | None, kubeconfig: str | None) -> Cluster:
        key = (context, namespace, kubeconfig)
        with self._connecting:
            if key not in self._clusters:
                self._clusters[key] = connect(context, namespace, kubeconfig=kubeconfig)
            return self._clusters[key]

    def _run(self, app_id: str) -> Run:
        """Return the Framework of that id. Raises NotFound."""
        *where, name = app_id.split(":", 2)
        namespace = where[-1] if where else None
        context = unquote(where[0]) if len(where) > 1 else None
        return self._cluster(context, namespace, self._kubeconfigs.get(app_id)).get(name)


def create_scheduler(session_name: str, **_parameters: object) -> FrameworkScheduler:
    """Return the scheduler, for TorchX. ``_parameters``: for other schedulers."""
    return FrameworkScheduler(session_name)


def framework_of(app: AppDef, cfg: Mapping[str, Any]) -> Framework:
    """Return the Framework of an app. Reads only the files of the option ``code``.

    Raises:
        ValueError: the app has a feature without counterpart, or the controller would refuse the Framework.
    """
    if not app.roles:
        raise ValueError(f"the app {app.name} has no roles")
    names = _role_names(app.roles)
    alone = sum(role.num_replicas for role in app.roles) == 1
    host = "localhost" if alone else placeholder(COORDINATOR_HOST)
    retries = [role.max_retries for role in app.roles if role.retry_policy == RetryPolicy.APPLICATION]
    label = re.sub(r"[^\w.-]", ".", app.name, flags=re.ASCII)[:63].strip("._-")
    code = cfg.get("code")
    return Framework(
        generate_name=_prefix(app, names),
        roles=[_task_role(role, name, host) for role, name in zip(app.roles, names, strict=True)],
        retry=Retry(max(retries, default=0)),
        queue=cfg.get("queue"),
        priority=cfg.get("priority"),
        gang=bool(cfg.get("gang")),
        network=not alone,
        coordinator=None if alone else f"{names[0]}/0",
        code=Code.files(*code) if code else None,
        labels={APP_NAME: label} if label else {},
        annotations={
            APP_NAME: app.name,
            ROLE_NAMES: json.dumps({name: role.name for name, role in zip(names, app.roles, strict=True)}),
        },
    )


def _task_role(role: AppRole, name: str, host: str) -> Role:
    if role.max_retries and role.retry_policy not in (RetryPolicy.REPLICA, RetryPolicy.APPLICATION):
        raise ValueError(f"role {role.name}: {role.retry_policy} is not supported; use REPLICA or APPLICATION")
    values = macros.Values(
        img_root="",
        app_id=placeholder(FRAMEWORK_NAME),
        replica_id=placeholder(TASK_INDEX),
        rank0_env=RANK0_HOST,
    )
    role = values.apply(role)
    needed = role.num_replicas if role.min_replicas is None else role.min_replicas
    return Role(
        name=name,
        tasks=role.num_replicas,
        image=role.image or None,
        command=[_escaped(word) for word in (role.entrypoint, *role.args)],
        env={RANK0_HOST: host, **{key: _escaped(value) for key, value in role.env.items()}},
        resources=Resources(
            cpu=role.resource.cpu if role.resource.cpu > 0 else None,
            memory=f"{role.resource.memMB}M" if role.resource.memMB > 0 else None,
            gpus=max(role.resource.gpu, 0),
        ),
        retry=Retry(role.max_retries if role.retry_policy == RetryPolicy.REPLICA else 0),
        completion=Completion(min_failed=role.num_replicas - needed + 1),
        pod=merged(_pod(role), role.metadata.get(NAME) or {}),
    )


def _pod(role: AppRole) -> Json:
    """Return the fields of the Pod template that `Role` does not name."""
    # PyTorch's data loaders share more memory than the 64 MiB of a container runtime.
    volumes: list[Json] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    mounts: list[Json] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108
    container: Json = {"name": CONTAINER, "volumeMounts": mounts}
    for number, mount in enumerate(role.mounts):
        name = f"mount-{number}"
        if isinstance(mount, DeviceMount):
            source: Json = {"hostPath": {"path": mount.src_path}}
            read_only = not {"w", "m"}.intersection(mount.permissions)
            container["securityContext"] = {"privileged": True}
        elif isinstance(mount, BindMount):
            source, read_only = {"hostPath": {"path": mount.src_path}}, mount.read_only
        else:
            source, read_only = {"persistentVolumeClaim": {"claimName": mount.src}}, mount.read_only
        volumes.append({"name": name, **source})
        mounts.append({"name": name, "mountPath": mount.dst_path, "readOnly": read_only})
    if role.port_map:
        container["ports"] = [{"name": name, "containerPort": port} for name, port in role.port_map.items()]
    if role.resource.devices:
        devices = {name: str(count) for name, count in role.resource.devices.items()}
        container["resources"] = {"requests": devices, "limits": devices}
    spec: Json = {"containers": [container], "volumes": volumes}
    if kind := role.resource.capabilities.get(_INSTANCE_TYPE):
        spec["nodeSelector"] = {_INSTANCE_TYPE: kind}
    return {"spec": spec}


def _escaped(text: str) -> str:
    """Return the text for a command or a variable, where Kubernetes would replace ``$(NAME)`` and ``$$``."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _role_names(roles: Sequence[AppRole]) -> list[str]:
    """Return a name of a TaskRole for each role."""
    found: list[str] = []
    for role in roles:
        plain = _plain(role.name)[:_MAX_ROLE] or "role"
        numbered = (f"{plain}{number}" for number in range(2, len(roles) + 2))
        found.append(plain if plain not in found else next(one for one in numbered if one not in found))
    return found


def _prefix(app: AppDef, roles: Sequence[str]) -> str:
    """Return the start of the Framework's name, which leaves room in the host names of its Pods."""
    longest = max(len(pod_name("", name, role.num_replicas - 1)) for name, role in zip(roles, app.roles, strict=True))
    # The name of a Service starts with a letter.
    name = re.sub(r"^(?=\d|$)", "app", _plain(app.name))
    return name[: min(_MAX_NAME, MAX_HOSTNAME - _SUFFIX - longest)]


def _id(context: str | None, run: Run) -> str:
    where = f"{run.namespace}:{run.name}"
    return f"{quote(context, safe='')}:{where}" if context else where


def _app_name(body: Mapping[str, Any]) -> str:
    metadata = body["metadata"]
    name: str = (metadata.get("annotations") or {}).get(APP_NAME, metadata["name"])
    return name


def _names(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the app's names of the TaskRoles."""
    annotation = (body["metadata"].get("annotations") or {}).get(ROLE_NAMES, "{}")
    known = {}
    with suppress(ValueError):
        known = json.loads(annotation)
    return {role["name"]: known.get(role["name"], role["name"]) for role in body["spec"]["taskRoles"]}


def _role(body: Mapping[str, Any], names: Mapping[str, str], framework: Mapping[str, Any]) -> AppRole:
    """Return the role as its manifest has it."""
    containers = body["task"]["pod"]["spec"].get("containers") or [{}]
    container = next((one for one in containers if one.get("name") == CONTAINER), containers[0])
    words = [_unescaped(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
    found = AppRole(
        name=names[body["name"]],
        image=container.get("image") or "",
        args=words[1:],
        env={one["name"]: _unescaped(one["value"]) for one in container.get("env") or () if "value" in one},
        num_replicas=body.get("taskNumber", 1),
        resource=_resource(container.get("resources") or {}),
        port_map={one["name"]: one["containerPort"] for one in container.get("ports") or () if one.get("name")},
    )
    if words:
        found.entrypoint = words[0]
    found.max_retries = _retries(body["task"])
    if found.max_retries:
        found.retry_policy = RetryPolicy.REPLICA
    else:
        found.max_retries = _retries(framework["spec"])
    return found


def _retries(body: Mapping[str, Any]) -> int:
    count: int = (body.get("retryPolicy") or {}).get("maxRetryCount", 0)
    return count


def _resource(body: Mapping[str, Any]) -> Resource:
    amounts = {}
    for name, text in ((body.get("limits") or {}) | (body.get("requests") or {})).items():
        with suppress(ValueError):
            amounts[name] = parse_quantity(text)
    # -1: none is requested.
    return Resource(
        cpu=int(amounts.pop("cpu", -1)),
        gpu=int(amounts.pop(GPU, 0)),
        memMB=int(amounts.pop("memory", -_MB) // _MB),
        devices={name: int(count) for name, count in amounts.items() if "/" in name},
    )


def _unescaped(text: str) -> str:
    return text.replace("$$", "$")


def _role_status(body: Mapping[str, Any], names: Mapping[str, str], status: Status) -> RoleStatus:
    name = names[body["name"]]
    role = status.roles.get(body["name"])
    if role is None:
        waiting = range(body.get("taskNumber", 1))
        return RoleStatus(name, [ReplicaStatus(index, _STATES[status.phase], name, "") for index in waiting])
    return RoleStatus(name, [_replica_status(task, name) for task in role.tasks])


def _replica_status(task: TaskStatus, role: str) -> ReplicaStatus:
    found = ReplicaStatus(id=task.index, state=_STATES[task.phase], role=role, hostname=task.node)
    if task.phase is Phase.FAILED:
        # The format of torchelastic's error files, which TorchX prints.
        message = {
            "message": task.message or task.reason,
            "errorCode": task.code,
            "extraInfo": {"timestamp": task.completed or 0},
        }
        found.structured_error_msg = json.dumps({"message": message})
    return found


def _filtered(
    lines: Iterable[tuple[str, str]], regex: str | None, since: datetime | None, until: datetime | None
) -> Iterator[str]:
    """Yield the lines that match. A time without zone is local time."""
    pattern = re.compile(regex or "")
    for stamp, text in lines:
        if stamp and (since or until):
            moment = datetime.fromisoformat(stamp)
            if since and moment < since.astimezone():
                continue
            if until and moment > until.astimezone():
                return
        if pattern.search(text):
            yield f"{text}\n"


def _finds_entry_point() -> bool:
    """Return whether TorchX also reads the entry point: it warns about plug-ins that it finds twice."""
    from torchx.plugins import _registry

    sources = getattr(getattr(_registry, "PluginSource", None), "__members__", ())
    reads = "ENTRYPOINT" in sources and os.environ.get("TORCHX_PLUGINS_SOURCE", "3") in {"2", "3"}
    return reads and bool(entry_points(group="torchx.schedulers", name=NAME))


with suppress(ImportError):  # torchx 0.7 reads only the entry point
    from torchx.plugins import register

    if not _finds_entry_point():
        create_scheduler = register.scheduler(name=NAME)(create_scheduler)
