"""Frameworks for the launchers of the field. Each is a `Framework`, whose parts may be replaced."""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files as resource_files
from pathlib import Path
from typing import Any, Final, Unpack

from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from frameworkcontroller.api.names import COORDINATOR_HOST, TASK_INDEX, TASKROLE_NAME, TASKROLE_TASK_NUMBER, placeholder
from frameworkcontroller.api.problems import Problem
from frameworkcontroller.sdk.definitions import Completion, Framework, Progress, Resources, Retry, Role
from frameworkcontroller.sdk.exceptions import InvalidSpec
from frameworkcontroller.sdk.podtemplates import CONTAINER, Json, merged
from frameworkcontroller.sdk.shippedcode import FOLDER, Code

PORT: Final = 29500
"""Port of the coordinator, on Task 0."""

_TF_PORT: Final = 4000
_SSH_PORT: Final = 2222
_KEY: Final = "id_ed25519"
_RUNNER: Final = "framework_task_runner.py"
_CALL: Final = "framework_task_call.pickle"
_NEVER: Final = Completion(min_failed=-1, min_succeeded=-1)
_DECIDES: Final = Completion(min_failed=1, min_succeeded=1)
_SHM: Final[Json] = {
    "spec": {
        "containers": [{"name": CONTAINER, "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}],  # noqa: S108
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }
}
"""PyTorch's and Ray's processes share more memory than the 64 MiB of a container runtime."""


class Options(TypedDict, total=False):
    """Fields of `Framework`, of the roles that a preset makes (image, env, resources, pod), all optional."""

    name: str
    generate_name: str
    image: str
    env: Mapping[str, str]
    resources: Resources
    pod: Mapping[str, Any]
    retry: Retry
    queue: str
    priority: str
    gang: bool
    deadline: int
    ttl: int
    progress: Progress
    code: Code
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def command(words: Sequence[str], *, tasks: int = 1, **options: Unpack[Options]) -> Framework:
    """A program in each of ``tasks`` Tasks; the first failure ends all."""
    role, rest = _split(options, "command")
    return Framework(roles=[Role(tasks=tasks, command=words, **role)], **rest)


def torchrun(
    target: str,
    *,
    nodes: int = 1,
    gpus_per_node: int = 0,
    procs_per_node: int | None = None,
    args: Sequence[str] = (),
    **options: Unpack[Options],
) -> Framework:
    """PyTorch's launcher on each node: ``target`` is a script (``train.py``), or a module (``-m package.train``).

    ``procs_per_node``: processes of a node, by default one for each GPU, or one without GPUs.
    """
    words = target.split() if target.startswith("-m ") else [target]
    env = {
        "PET_NNODES": placeholder(TASKROLE_TASK_NUMBER),
        "PET_NODE_RANK": placeholder(TASK_INDEX),
        "PET_MASTER_ADDR": placeholder(COORDINATOR_HOST),
        "PET_MASTER_PORT": str(PORT),
        "PET_NPROC_PER_NODE": str(procs_per_node or gpus_per_node or 1),
    }
    return _distributed("torchrun", ["torchrun", *words, *args], nodes, gpus_per_node, env, options)


def distributed(
    words: Sequence[str], *, nodes: int = 1, gpus_per_node: int = 0, **options: Unpack[Options]
) -> Framework:
    """A program that connects its workers itself, by the variables RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. These
    are also PyTorch's, with one process for each node."""
    env = {
        "RANK": placeholder(TASK_INDEX),
        "WORLD_SIZE": placeholder(TASKROLE_TASK_NUMBER),
        "MASTER_ADDR": placeholder(COORDINATOR_HOST),
        "MASTER_PORT": str(PORT),
    }
    return _distributed("distributed", words, nodes, gpus_per_node, env, options)


def jax(words: Sequence[str], *, nodes: int = 1, gpus_per_node: int = 0, **options: Unpack[Options]) -> Framework:
    """A program that calls ``jax.distributed.initialize`` with the variables JAX_COORDINATOR_ADDRESS,
    JAX_PROCESS_ID and JAX_NUM_PROCESSES."""
    env = {
        "JAX_COORDINATOR_ADDRESS": f"{placeholder(COORDINATOR_HOST)}:{PORT}",
        "JAX_PROCESS_ID": placeholder(TASK_INDEX),
        "JAX_NUM_PROCESSES": placeholder(TASKROLE_TASK_NUMBER),
    }
    return _distributed("jax", words, nodes, gpus_per_node, env, options)


def tensorflow(
    words: Sequence[str],
    *,
    workers: int = 1,
    parameter_servers: int = 0,
    chief: bool = True,
    **options: Unpack[Options],
) -> Framework:
    """A program that reads TF_CONFIG, as chief, worker or parameter server. The chief decides; without one, worker 0
    is first and all workers must succeed."""
    role, rest = _split(options, "tensorflow")
    counts = {"chief": int(chief), "ps": parameter_servers, "worker": workers}
    roles = [name for name, count in counts.items() if count]
    hosts = ", ".join(f'"{name}": {{{{FC_HOSTS_JSON:{name}:{_TF_PORT}}}}}' for name in roles)
    task = f'{{"type": "{placeholder(TASKROLE_NAME)}", "index": {placeholder(TASK_INDEX)}}}'
    env = {"TF_CONFIG": f'{{"cluster": {{{hosts}}}, "task": {task}}}', **role.pop("env")}
    # The others serve the chief, and end with it.
    ends = {"chief": _DECIDES, "ps": Completion(), "worker": Completion()}
    if not chief and parameter_servers:
        ends["worker"] = Completion(min_failed=1, min_succeeded=workers)
    made = [Role(name=one, tasks=counts[one], command=words, env=env, completion=ends[one], **role) for one in roles]
    return Framework(roles=made, network=True, **rest)


def mpi(
    words: Sequence[str], *, workers: int = 1, slots: int = 1, ssh_secret: str = "", **options: Unpack[Options]
) -> Framework:
    """A program that ``mpirun`` of Open MPI starts on all workers by ssh, ``slots`` processes on each.

    ``image`` must have mpirun and sshd. ``ssh_secret``: a Secret with id_ed25519 and id_ed25519.pub; by default
    ``ssh-keygen`` makes a pair, which goes with the Framework. Raises InvalidSpec if it cannot.
    """
    role, rest = _split(options, "mpi")
    objects = [] if ssh_secret else [_ssh_keys()]
    secret = ssh_secret or objects[0]["metadata"]["name"]
    mount = _container(volumeMounts=[{"name": "ssh", "mountPath": "/mnt/ssh", "readOnly": True}])
    mount["spec"]["volumes"] = [{"name": "ssh", "secret": {"secretName": secret, "defaultMode": 0o400}}]
    ssh = f"-p {_SSH_PORT} -i /mnt/ssh/{_KEY} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    launch = ["mpirun", "--allow-run-as-root", "--host", f"{{{{FC_HOSTS:worker:{slots}}}}}"]
    launch += ["--mca", "orte_keep_fqdn_hostnames", "true", "--mca", "plm_rsh_args", ssh, "-x", "PATH", *words]
    serve = ["/usr/sbin/sshd", "-De", "-f", "/dev/null", "-p", str(_SSH_PORT), "-h", f"/mnt/ssh/{_KEY}"]
    # The folder of a Secret may be written by all.
    serve += [
        f"-oAuthorizedKeysFile=/mnt/ssh/{_KEY}.pub",
        "-oStrictModes=no",
        f"-oListenAddress={placeholder('FC_POD_NAME')}",
    ]
    pod = role.pop("pod", {})
    resources = role.pop("resources", Resources())
    made = [
        Role(
            name="launcher",
            command=launch,
            depends_on={"worker": "Ready"},
            completion=_DECIDES,
            pod=merged(mount, pod),
            **role,
        ),
        Role(
            name="worker",
            tasks=workers,
            command=serve,
            resources=resources,
            pod=merged(merged(mount, _ready(_SSH_PORT)), pod),
            **role,
        ),
    ]
    return Framework(roles=made, network=True, objects=objects, **rest)


def ray(words: Sequence[str], *, workers: int = 1, gpus_per_worker: int = 0, **options: Unpack[Options]) -> Framework:
    """A Ray cluster that runs one job and ends: a head, workers, and the driver with the program. ``image`` has Ray."""
    role, rest = _split(options, "ray")
    resources = _with_gpus(role.pop("resources", Resources()), gpus_per_worker)
    host = placeholder(COORDINATOR_HOST)
    pod = role.pop("pod", {})
    node = ["--node-ip-address=$(POD_IP)"]
    made = _served(
        workers,
        Role(
            name="head",
            command=["ray", "start", "--head", "--block", "--num-cpus=0", "--dashboard-host=$(POD_IP)", *node],
            pod=_ready(8265),
            **role,
        ),
        Role(command=["ray", "start", "--block", f"--address={host}:6379", *node], resources=resources, **role),
        Role(
            name="driver",
            command=["ray", "job", "submit", "--address", f"http://{host}:8265", "--", *words],
            pod=pod,
            **role,
        ),
        merged(merged(_own_address("POD_IP"), _SHM), pod),
    )
    return Framework(roles=made, network=True, coordinator="head", **rest)


def spark(
    words: Sequence[str], *, workers: int = 1, cores: int = 1, memory: str = "1g", **options: Unpack[Options]
) -> Framework:
    """A stand-alone Spark cluster that runs one program and ends. ``words``: arguments of spark-submit.

    ``cores``, ``memory``: of each worker, in Spark's words. ``image`` must have Spark's programs on its PATH.
    """
    role, rest = _split(options, "spark")
    url = f"spark://{placeholder(COORDINATOR_HOST)}:7077"
    pod = merged(_own_address("SPARK_LOCAL_IP"), role.pop("pod", {}))
    resources = role.pop("resources", Resources())
    serve = ["spark-class", "org.apache.spark.deploy.worker.Worker", "--cores", str(cores), "--memory", memory, url]
    made = _served(
        workers,
        Role(
            name="master",
            command=["spark-class", "org.apache.spark.deploy.master.Master"],
            pod=_ready(7077),
            **role,
        ),
        Role(command=serve, resources=resources, **role),
        Role(name="driver", command=["spark-submit", "--master", url, *words], pod=pod, **role),
        pod,
    )
    return Framework(roles=made, network=True, coordinator="master", **rest)


def function(
    target: str | Callable[..., Any],
    *,
    tasks: int = 1,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    by_value: bool = False,
    **options: Unpack[Options],
) -> Framework:
    """A call of a Python function in each Task. `Result.values` has the returned JSON values.

    ``target``: ``"module:function"``, whose code the image or ``code`` has; or a function of a module, whose file goes
    with the Framework. ``args``, ``kwargs``: JSON values. ``by_value``: the function itself is sent, by cloudpickle,
    which the image must have: for notebooks. Both need the same Python version in the image, as the default image has.

    Raises:
        InvalidSpec: the function has no module that can be imported, or a value is no JSON.
    """
    role, rest = _split(options, "function")
    role.setdefault("image", f"python:{sys.version_info.major}.{sys.version_info.minor}-slim")
    code: Code | None = rest.pop("code", None)
    call = {"args": list(args), "kwargs": dict(kwargs or {})}
    if by_value:
        if not callable(target):
            raise InvalidSpec([Problem(("by_value",), "needs a function, not its name", target)])
        own = _pickled(target, call)
        code = (code or Code("files", {}, {})).with_files({_CALL: own})
        words = ["--pickled", _CALL]
    else:
        if callable(target):
            target, file = _place_of(target)
            code = code or Code.files(file)
        try:
            # Kubernetes replaces $(NAME) in commands.
            words = [target, json.dumps(call, allow_nan=False).replace("$", r"\u0024")]
        except (TypeError, ValueError) as error:
            raise InvalidSpec([Problem(("args",), f"must be JSON: {error}")]) from None
    runner = resource_files("frameworkcontroller.sdk").joinpath("taskrunner.py").read_bytes()
    if code is not None and code.kind == "files":
        code, start = code.with_files({_RUNNER: runner}), [f"{FOLDER}/{_RUNNER}"]
    else:
        start = ["-c", runner.decode()]
    return Framework(roles=[Role(tasks=tasks, command=["python3", "-u", *start, *words], **role)], code=code, **rest)


def is_importable(target: Callable[..., Any]) -> bool:
    """Return whether the function can go by reference: it is one of a module that has a file."""
    try:
        _place_of(target)
    except InvalidSpec:
        return False
    return True


def below_torchrun(made: Framework) -> Framework:
    """Return the Framework of `function` with torchrun in each Task, with a process for each GPU."""
    (role,) = made.roles
    words = list(role.command)[2:]
    if words[0] == "-c":
        raise InvalidSpec([Problem(("code",), "must be files: torchrun needs a script")])
    started = torchrun(
        words[0], nodes=role.tasks, gpus_per_node=role.resources.gpus, args=words[1:], generate_name="torchrun"
    )
    (launched,) = started.roles
    changes: dict[str, Any] = {"command": launched.command, "env": {**launched.env, **role.env}, "pod": launched.pod}
    return made.replaced(roles=[role.replaced(**changes)], network=True, coordinator=started.coordinator)


def _place_of(target: Callable[..., Any]) -> tuple[str, Path]:
    """Return ``module:function``, and the file or the top folder of the module."""
    name = getattr(target, "__qualname__", "")
    module = inspect.getmodule(target)
    file = getattr(module, "__file__", None)
    if module is None or file is None or "<" in name or not name:
        text = "is not a function of a module that can be imported; send it with by_value=True"
        raise InvalidSpec([Problem(("target",), text, name or repr(target))])
    path = Path(file)
    if module.__name__ == "__main__":
        return f"{path.stem}:{name}", path
    for _ in module.__name__.split(".")[1:]:
        path = path.parent
    top = path.parent if path.name == "__init__.py" else path
    return f"{module.__name__}:{name}", top


def _pickled(target: Callable[..., Any], call: Json) -> bytes:
    try:
        import cloudpickle
    except ImportError:
        text = "needs cloudpickle, here and in the image: pip install cloudpickle"
        raise InvalidSpec([Problem(("by_value",), text)]) from None
    data: bytes = cloudpickle.dumps((target, call["args"], call["kwargs"]))
    return f"{sys.version_info.major}.{sys.version_info.minor}\n".encode() + data


def _distributed(
    preset: str, words: Sequence[str], nodes: int, gpus: int, env: Mapping[str, str], options: Options
) -> Framework:
    role, rest = _split(options, preset)
    pod = merged(_SHM, role.pop("pod", {}))
    resources = _with_gpus(role.pop("resources", Resources()), gpus)
    own = {**env, **role.pop("env")}
    made = Role(tasks=nodes, command=words, env=own, resources=resources, pod=pod, **role)
    return Framework(roles=[made], network=True, coordinator="worker/0", **rest)


def _served(workers: int, head: Role, worker: Role, driver: Role, pod: Json) -> list[Role]:
    """Return the roles of a cluster that serves a driver: the driver decides, and lost workers are replaced.

    ``pod``: of head and workers.
    """
    ready = {head.name: "Ready"}
    return [
        head.replaced(pod=merged(pod, head.pod)),
        worker.replaced(tasks=workers, depends_on=ready, retry=Retry(-1, fancy=True), completion=_NEVER, pod=pod),
        driver.replaced(depends_on=ready, completion=_DECIDES),
    ]


def _with_gpus(resources: Resources, gpus: int) -> Resources:
    return resources.replaced(gpus=gpus) if gpus else resources


def _split(options: Options, preset: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of the roles, and of the Framework, with a generated name if it has none."""
    given: dict[str, Any] = dict(options)
    role: dict[str, Any] = {key: given.pop(key) for key in ("image", "resources", "pod") if key in given}
    role["env"] = given.pop("env", {})
    if "name" not in given:
        given.setdefault("generate_name", preset)
    return role, given


def _container(**fields: Any) -> Json:
    return {"spec": {"containers": [{"name": CONTAINER, **fields}]}}


def _ready(port: int) -> Json:
    return _container(readinessProbe={"periodSeconds": 2, "tcpSocket": {"port": port}})


def _own_address(variable: str) -> Json:
    return _container(env=[{"name": variable, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}])


def _ssh_keys() -> Json:
    """Return a Secret with a new pair of keys."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, _KEY)
        try:
            subprocess.run(  # noqa: S603
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "framework", "-f", str(path)],  # noqa: S607
                check=True,
                capture_output=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise InvalidSpec(
                [Problem(("ssh_secret",), f"is not given, and ssh-keygen makes no keys: {error}")]
            ) from None
        data = {one.name: one.read_bytes() for one in (path, path.with_suffix(".pub"))}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"framework-ssh-{hashlib.sha256(data[f'{_KEY}.pub']).hexdigest()[:20]}"},
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }
