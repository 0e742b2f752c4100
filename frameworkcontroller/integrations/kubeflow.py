"""A backend of Kubeflow's SDK: its trainers run as Frameworks, on a cluster without Kubeflow Trainer or on a laptop.

    client = trainer_client(frameworkcontroller.local())
    name = client.train(runtime="python", trainer=CustomTrainer(func=train, num_nodes=4))

Source: the interface `RuntimeBackend` of kubeflow 0.5.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from kubeflow.trainer import LocalProcessBackendConfig, TrainerClient
from kubeflow.trainer.backends.base import RuntimeBackend
from kubeflow.trainer.constants import constants
from kubeflow.trainer.types import types

from frameworkcontroller.api.names import GPU
from frameworkcontroller.api.status import Phase
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.sdk import presets
from frameworkcontroller.sdk.definitions import Framework, Progress, Resources
from frameworkcontroller.sdk.exceptions import NotFound, WaitTimeout
from frameworkcontroller.sdk.runstatus import TaskStatus
from frameworkcontroller.sdk.syncclient import Cluster, Run

PYTHON: Final = "python"
"""The runtime that calls the function once on each node."""

TORCH: Final = constants.DEFAULT_TRAINING_RUNTIME
"""The runtime that starts torchrun on each node, with a process for each GPU."""

RUNTIME_LABEL: Final = "frameworkcontroller.microsoft.com/kubeflow-runtime"

_STATUS: Final = {
    Phase.SUCCEEDED: constants.TRAINJOB_COMPLETE,
    Phase.FAILED: constants.TRAINJOB_FAILED,
    Phase.STOPPED: constants.TRAINJOB_FAILED,
    Phase.RUNNING: constants.TRAINJOB_RUNNING,
    Phase.ENDING: constants.TRAINJOB_RUNNING,
}
"""Other phases are Created."""

_NODE: Final = f"{constants.NODE}-"
_ROLE: Final = "worker"


def trainer_client(cluster: Cluster, *, image: str | None = None) -> TrainerClient:
    """Return Kubeflow's client for this cluster. ``image``: of trainers that name none.

    Kubeflow's class accepts only its own backends, so this one replaces its local one.
    """
    client = TrainerClient(LocalProcessBackendConfig())
    client.backend = FrameworkBackend(cluster, image=image)
    return client


class FrameworkBackend(RuntimeBackend):
    """Runs a `CustomTrainer`, or a `CustomTrainerContainer`, as a Framework of one role."""

    def __init__(self, cluster: Cluster, *, image: str | None = None) -> None:
        """``image``: of trainers that name none; the local cluster needs none."""
        self._cluster = cluster
        self._image = image

    def list_runtimes(self) -> list[types.Runtime]:
        """Return both runtimes: ``python`` and ``torch-distributed``."""
        return [self.get_runtime(name) for name in (PYTHON, TORCH)]

    def get_runtime(self, name: str) -> types.Runtime:
        """Return the runtime. Raises ValueError if there is none of that name."""
        if name not in (PYTHON, TORCH):
            raise ValueError(f"there is no runtime {name!r}, only {PYTHON} and {TORCH}")
        trainer = types.RuntimeTrainer(
            trainer_type=types.TrainerType.CUSTOM_TRAINER,
            framework="torch" if name == TORCH else PYTHON,
            image=self._image or "",
        )
        trainer.set_command(("torchrun",) if name == TORCH else ("python3",))
        return types.Runtime(name=name, trainer=trainer, kind=types.RuntimeKind.CLUSTER_TRAINING_RUNTIME)

    def get_runtime_packages(self, runtime: types.Runtime) -> None:
        """Print the packages of the runtime's image, from a Task of its own."""
        words = ["python3", "-m", "pip", "list"]
        options: presets.Options = {"generate_name": "packages", "ttl": 600}
        if runtime.trainer.image:
            options["image"] = runtime.trainer.image
        self._cluster.run(presets.command(words, **options))

    def train(
        self,
        runtime: str | types.Runtime | None = None,
        initializer: types.Initializer | None = None,
        trainer: types.CustomTrainer | types.CustomTrainerContainer | types.BuiltinTrainer | None = None,
        options: list[Any] | None = None,
    ) -> str:
        """Submit the trainer, and return the name of its Framework.

        Raises:
            ValueError: it needs more than a Framework has here: an initializer, a builtin trainer, packages to
                install, or a name that is no Framework's.
        """
        if initializer is not None:
            raise ValueError("initializer: is not supported; read the data in the function, or mount a claim")
        if not isinstance(trainer, types.CustomTrainer | types.CustomTrainerContainer):
            raise ValueError("trainer: must be a CustomTrainer or a CustomTrainerContainer")
        spec: dict[str, Any] = {}
        for option in options or ():
            option(spec, trainer, self)
        name = runtime if isinstance(runtime, str) else TORCH if runtime is None else runtime.name
        self.get_runtime(name)
        made = self._framework(name, trainer, spec.get("metadata") or {})
        return self._cluster.submit(made).name

    def _framework(
        self, runtime: str, trainer: types.CustomTrainer | types.CustomTrainerContainer, metadata: Mapping[str, Any]
    ) -> Framework:
        labels = {**(metadata.get("labels") or {}), RUNTIME_LABEL: runtime}
        options: presets.Options = {
            "labels": labels,
            "annotations": metadata.get("annotations") or {},
            "env": trainer.env or {},
            "resources": _resources(trainer.resources_per_node or {}),
            # For update_trainjob_status. Kubeflow's own jobs do not show its reports; the Framework does.
            "progress": Progress(),
        }
        if metadata.get("name"):
            options["name"] = metadata["name"]
        else:
            options["generate_name"] = "trainjob"
        if image := trainer.image or self._image:
            options["image"] = image
        nodes = trainer.num_nodes or 1
        if isinstance(trainer, types.CustomTrainerContainer):
            return presets.command([], tasks=nodes, **options)
        if trainer.packages_to_install:
            raise ValueError("packages_to_install: Pods install nothing; use an image that has them")
        made = presets.function(
            trainer.func,
            tasks=nodes,
            kwargs=trainer.func_args,
            by_value=not presets.is_importable(trainer.func),
            **options,
        )
        return presets.below_torchrun(made) if runtime == TORCH else made

    def list_jobs(self, runtime: types.Runtime | None = None) -> list[types.TrainJob]:
        """Return the Frameworks that trainers have made, the oldest first."""
        selector = RUNTIME_LABEL if runtime is None else f"{RUNTIME_LABEL}={runtime.name}"
        return [self._job(run) for run in self._cluster.list(selector)]

    def get_job(self, name: str) -> types.TrainJob:
        """Return the job. Raises ValueError if there is none."""
        return self._job(self._run(name))

    def get_job_logs(self, name: str, follow: bool = False, step: str = f"{_NODE}0") -> Iterator[str]:
        """Yield the lines of a node. Raises ValueError if there is no such job or node."""
        index = step.removeprefix(_NODE)
        if not step.startswith(_NODE) or not index.isdigit():
            raise ValueError(f"step: {step!r} is no node, such as {_NODE}0")
        return (line.text for line in self._run(name).logs(role=_ROLE, task=int(index), follow=follow))

    def get_job_events(self, name: str) -> list[types.Event]:
        """Return the Kubernetes Events of the job and its Pods, the oldest first."""
        found = []
        for event in self._run(name).events():
            kind, _, about = event.about.partition("/")
            found.append(types.Event(kind, about, event.text, event.reason, datetime.fromtimestamp(event.seen, UTC)))
        return found

    def wait_for_job_status(
        self,
        name: str,
        status: set[str] = {constants.TRAINJOB_COMPLETE},  # noqa: B006 - Kubeflow's interface
        timeout: int = 600,
        polling_interval: int = 2,
        callbacks: list[Callable[[types.TrainJob], None]] | None = None,
    ) -> types.TrainJob:
        """Wait until the job has one of these statuses, and call ``callbacks`` at each change.

        Raises:
            RuntimeError: it failed, which is none of them.
            TimeoutError: it had none of them within ``timeout`` seconds.
            ValueError: there is no such job, or no such status.
        """
        known = {constants.TRAINJOB_CREATED, *_STATUS.values()}
        if not status <= known:
            raise ValueError(f"status: {', '.join(sorted(status - known))}: must be of {', '.join(sorted(known))}")
        run = self._run(name)
        deadline = time.monotonic() + timeout
        while True:
            job = self._job(run)
            for callback in callbacks or ():
                callback(job)
            if job.status in status:
                return job
            if job.status == constants.TRAINJOB_FAILED:
                raise RuntimeError(f"TrainJob {name} is Failed: {run.status.message}")
            if (left := deadline - time.monotonic()) <= 0:
                raise TimeoutError(f"TrainJob {name} is {run.status} after {timeout} s")
            with suppress(WaitTimeout):
                run.wait(timeout=min(left, polling_interval))

    def delete_job(self, name: str) -> None:
        """Delete the job with its Pods. Raises ValueError if there is none."""
        self._run(name).delete()

    # --- inside ---

    def _run(self, name: str) -> Run:
        try:
            return self._cluster.get(name)
        except NotFound as error:
            raise ValueError(str(error)) from None

    def _job(self, run: Run) -> types.TrainJob:
        status, body = run.status, run.status.object
        tasks: Sequence[TaskStatus] = status.roles[_ROLE].tasks if _ROLE in status.roles else ()
        runtime = self.get_runtime((body["metadata"].get("labels") or {}).get(RUNTIME_LABEL, PYTHON))
        return types.TrainJob(
            name=run.name,
            runtime=runtime,
            steps=[
                types.Step(f"{_NODE}{task.index}", str(task.phase), f"{run.name}-{_ROLE}-{task.index}")
                for task in tasks
            ],
            num_nodes=body["spec"]["taskRoles"][0].get("taskNumber", 1),
            creation_timestamp=datetime.fromtimestamp(parse_time(body["metadata"]["creationTimestamp"]), UTC),
            status=_STATUS.get(status.phase, constants.TRAINJOB_CREATED),
        )


def _resources(wanted: Mapping[str, Any]) -> Resources:
    """Return Kubeflow's ``resources_per_node``: cpu, memory, gpu or a MIG slice."""
    found: dict[str, Any] = {}
    for key, value in wanted.items():
        word = key.lower()
        if word in ("cpu", "memory"):
            found[word] = str(value)
        elif word in ("gpu", GPU) or word.startswith(("mig-", "nvidia.com/mig-")):
            kind = GPU if word in ("gpu", GPU) else f"nvidia.com/{word.removeprefix('nvidia.com/')}"
            found |= {"gpus": int(value), "gpu_resource": kind}
        else:
            raise ValueError(f"resources_per_node: {key!r} is not supported; only cpu, memory, gpu and mig-…")
    return Resources(**found)
