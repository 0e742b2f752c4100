"""An operator of Airflow: runs a Framework as a task, and waits for its end in a worker or, deferred, in the triggerer.

    train = FrameworkOperator(task_id="train", framework=frameworkcontroller.command(["train.py", "--day", "{{ ds }}"]))

It follows the cncf.kubernetes provider's conventions. For Airflow 3, and 2.10 or later.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

import orjson
from airflow.triggers.base import BaseTrigger, TriggerEvent

from frameworkcontroller import aio
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.status import Phase
from frameworkcontroller.kube.client import MERGE_PATCH
from frameworkcontroller.sdk.asyncrun import MANAGER
from frameworkcontroller.sdk.background import loop_thread
from frameworkcontroller.sdk.definitions import Framework, Role
from frameworkcontroller.sdk.exceptions import FrameworkError, NotFound, Unreachable
from frameworkcontroller.sdk.runstatus import Status, read_result
from frameworkcontroller.sdk.translation import translated

try:
    from airflow.sdk import BaseOperator, conf
    from airflow.sdk.exceptions import AirflowException
except ImportError:
    # Airflow 2.
    from airflow.configuration import conf
    from airflow.exceptions import AirflowException
    from airflow.models import BaseOperator

CHECKED_LABEL: Final = "already_checked"
"""The label of Frameworks whose end a task has taken: a cleared task submits another one."""

_PLACEHOLDER: Final = re.compile(r"\{\{FC_[^{}]*\}\}")
_NO_LABEL: Final = re.compile(r"^[^a-zA-Z0-9]+|[^a-zA-Z0-9._-]|[^a-zA-Z0-9]+$")
_LABEL_LENGTH: Final = 63
_HASH_LENGTH: Final = 9


class FrameworkOperator(BaseOperator):
    """Submits a Framework and waits for its end. XCom gets the value that its first Task's function has returned.

    A retry attaches to the Framework of its predecessor, unless that one has failed or is stopped. The task fails if
    the Framework fails or is stopped. A killed task, or one beyond ``execution_timeout``, stops the Framework.
    """

    template_fields: Sequence[str] = ("framework", "context", "namespace")
    template_fields_renderers: Mapping[str, str] = {"framework": "json"}
    ui_color = "#d4ebf2"

    def __init__(
        self,
        *,
        framework: Framework | Mapping[str, Any],
        context: str | None = None,
        namespace: str | None = None,
        get_logs: bool = True,
        deferrable: bool | None = None,
        poll_interval: float = 10,
        **kwargs: Any,
    ) -> None:
        """``framework``: also a manifest. Jinja templates are rendered in its texts, except ``{{FC_…}}``.

        ``context``, ``namespace``: of the kubeconfig; by default kubectl's, or within a Pod its own. ``get_logs``: the
        lines of the Tasks go to the log of the task; if it is deferred, at the end. ``deferrable``: None: as Airflow
        is configured. ``poll_interval``: seconds until the triggerer tries again while no API server answers.
        """
        super().__init__(**kwargs)
        self.framework = framework
        self.context = context
        self.namespace = namespace
        self.get_logs = get_logs
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = deferrable
        self.poll_interval = poll_interval
        self._labels: dict[str, str] = {}
        self._is_killed = False

    def render_template(
        self, content: Any, context: Any, jinja_env: Any = None, seen_oids: set[int] | None = None
    ) -> Any:
        """Render the texts of a Framework, but none of its placeholders, which look like Jinja's expressions."""
        if isinstance(content, str):
            content = _PLACEHOLDER.sub(r"{% raw %}\g<0>{% endraw %}", content)
        elif isinstance(content, Framework | Role):
            values = {name: getattr(content, name) for name in type(content).model_fields}
            return content.replaced(**self.render_template(values, context, jinja_env, seen_oids))
        return super().render_template(content, context, jinja_env, seen_oids)

    def execute(self, context: Mapping[str, Any]) -> Any:
        """Submit the Framework, or attach to the one of an earlier try, and wait for it. Return its value."""
        self._labels = labels_of(context["ti"])
        name, namespace = loop_thread().call(self._begin())
        if not self.deferrable:
            return _taken(loop_thread().call(self._end(name)))
        trigger = FrameworkTrigger(
            name=name, namespace=namespace, context=self.context, poll_interval=self.poll_interval
        )
        return self.defer(trigger=trigger, method_name="execute_complete", timeout=self.execution_timeout)

    def execute_complete(self, context: Mapping[str, Any], event: Mapping[str, Any]) -> Any:
        """Continue after the trigger's event: log the lines of the Tasks, and return the value."""
        self._labels = labels_of(context["ti"])
        try:
            loop_thread().call(self._end(event["name"]))
        except NotFound:
            # Its ttl is over.
            self.log.warning("%s is gone, and its log", event["name"])
        return _taken(event)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        """Stop the Framework of a deferred task beyond ``execution_timeout``."""
        # Airflow's releases raise different errors.
        if next_method == "__fail__" and "timeout" in str((next_kwargs or {}).get("error")).lower():
            self._labels = labels_of(context["ti"])
            self.on_kill()
        return super().resume_execution(next_method, next_kwargs, context)

    def on_kill(self) -> None:
        """Stop the Framework."""
        self._is_killed = True
        if self._labels:
            loop_thread().call(self._stop())

    # --- inside ---

    def _cluster(self) -> aio.Cluster:
        return aio.connect(self.context, self.namespace)

    async def _begin(self) -> tuple[str, str]:
        """Return the name and the namespace of the task's Framework."""
        async with self._cluster() as cluster:
            own = await self._own(cluster)
            run = next((one for one in reversed(own) if _is_pending(one)), None)
            if run is not None:
                self.log.info("Attach to Framework %s/%s: %s", run.namespace, run.name, run.status)
                return run.name, run.namespace
            made = self.framework if isinstance(self.framework, Framework) else Framework.from_dict(self.framework)
            made = made.replaced(labels={**made.labels, **self._labels})
            run = await cluster.submit(made, replace=any(one.name == made.name for one in own))
            self.log.info("Framework %s/%s submitted", run.namespace, run.name)
            if self._is_killed:
                await run.stop()
            return run.name, run.namespace

    async def _end(self, name: str) -> Mapping[str, Any]:
        """Log the lines of the Framework until its end. Return the end, and mark it as taken."""
        async with self._cluster() as cluster:
            run = await cluster.get(name)
            if self.get_logs:
                try:
                    async with aclosing(run.logs(follow=True)) as lines:
                        async for line in lines:
                            self.log.info("%s", line)
                except FrameworkError as error:
                    self.log.warning("the log is incomplete: %s", error)
            end = _end_of(name, await run.wait())
            body = {"metadata": {"uid": run.uid, "labels": {CHECKED_LABEL: "True"}}}
            try:
                with translated("patch", FRAMEWORKS.plural, name=name, namespace=run.namespace):
                    await cluster.client.patch(
                        FRAMEWORKS,
                        name,
                        orjson.dumps(body),
                        run.namespace,
                        content_type=MERGE_PATCH,
                        field_manager=MANAGER,
                    )
            except FrameworkError as error:
                self.log.warning("%s is not marked as taken: %s", name, error)
            return end

    async def _stop(self) -> None:
        async with self._cluster() as cluster:
            for run in await self._own(cluster):
                if not run.status.is_final:
                    self.log.info("Stop Framework %s/%s", run.namespace, run.name)
                    await run.stop()

    async def _own(self, cluster: aio.Cluster) -> list[aio.Run]:
        """Return the Frameworks of all tries of this task, the oldest first."""
        return await cluster.list(",".join(f"{key}={value}" for key, value in self._labels.items()))


class FrameworkTrigger(BaseTrigger):
    """Watches a Framework. Its event is the end, or the error that hides it."""

    def __init__(self, *, name: str, namespace: str, context: str | None, poll_interval: float) -> None:
        """See `FrameworkOperator`."""
        super().__init__()
        self.name = name
        self.namespace = namespace
        self.context = context
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments."""
        arguments = {key: getattr(self, key) for key in ("name", "namespace", "context", "poll_interval")}
        return f"{__name__}.{type(self).__name__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event, at the end of the Framework."""
        end: Mapping[str, Any] | None = None
        while end is None:
            try:
                end = await self._watched()
            except Unreachable as error:
                self.log.warning("%s: %s", self.name, error)
                await asyncio.sleep(self.poll_interval)
            except FrameworkError as error:
                end = {"name": self.name, "phase": "", "message": str(error), "value": None}
        yield TriggerEvent(end)

    async def on_kill(self) -> None:
        """Stop the Framework. Airflow calls it since 3.3, when a user ends the deferred task."""
        async with self._cluster() as cluster:
            await (await cluster.get(self.name)).stop()

    def _cluster(self) -> aio.Cluster:
        return aio.connect(self.context, self.namespace)

    async def _watched(self) -> Mapping[str, Any]:
        async with self._cluster() as cluster:
            run = await cluster.get(self.name)
            async with aclosing(run.watch()) as changes:
                async for status in changes:
                    self.log.info("%s: %s", self.name, status)
            return _end_of(self.name, run.status)


def labels_of(ti: Any) -> dict[str, str]:
    """Return the labels of the Frameworks of this task instance, the same for all tries."""
    labels = {key: _label(getattr(ti, key)) for key in ("dag_id", "task_id", "run_id")}
    if ti.map_index is not None and ti.map_index >= 0:
        labels["map_index"] = str(ti.map_index)
    return labels


def _label(text: str) -> str:
    """Return the text as the value of a label, with a hash of it if it had to be changed."""
    safe = _NO_LABEL.sub("", text)
    if safe == text and len(text) <= _LABEL_LENGTH:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{safe[: _LABEL_LENGTH - _HASH_LENGTH - 1]}-{digest}".lstrip("-")


def _is_pending(run: aio.Run) -> bool:
    """Whether the end of the Framework is still to be taken, and is no failure as far as known."""
    body, phase = run.status.object, run.status.phase
    return (
        CHECKED_LABEL not in body["metadata"]["labels"]
        and body["spec"].get("executionType") != "Stop"
        and phase not in (Phase.FAILED, Phase.STOPPED)
    )


def _end_of(name: str, status: Status) -> Mapping[str, Any]:
    """Return a final status as values that Airflow can store."""
    value = read_result(status).value
    return {"name": name, "phase": str(status.phase), "message": f"{name}: {status}", "value": value}


def _taken(end: Mapping[str, Any]) -> Any:
    if end["phase"] != Phase.SUCCEEDED:
        raise AirflowException(end["message"])
    return end["value"]
