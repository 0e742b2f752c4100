"""A DAG whose tasks are Frameworks. As a program: run it, and its operators, and print the results as JSON."""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, TaskDeferralTimeout, TaskDeferred
from airflowtask import train

import frameworkcontroller
from frameworkcontroller.integrations.airflow import FrameworkOperator, FrameworkTrigger, labels_of

PLACES = ["sh", "-c", "echo {{ task.task_id }} has {{FC_TASK_INDEX}} of {{ params.count }}"]

AWAY = """
apiVersion: v1
kind: Config
current-context: away
contexts: [{name: away, context: {cluster: away, user: away}}]
clusters: [{name: away, cluster: {server: "ADDRESS"}}]
users: [{name: away, user: {}}]
"""


def framework(**values: Any) -> Any:
    """A Framework that calls the function."""
    call = {"day": "{{ ds }}", **values}
    return frameworkcontroller.function(train, kwargs=call, image="local", generate_name="train")


with DAG("training", start_date=datetime(2026, 1, 1, tzinfo=UTC), schedule=None, params={"count": 2}) as dag:
    good = FrameworkOperator(task_id="good", framework=framework())
    manifest = frameworkcontroller.command(PLACES, tasks=2, image="local", name="places").to_dict()
    FrameworkOperator(task_id="manifest", framework=manifest)
    FrameworkOperator(task_id="deferred", framework=framework(rate=2), deferrable=True) >> FrameworkOperator(
        task_id="bad", framework=framework(rate=-1), get_logs=False
    )
    FrameworkOperator(task_id="worse", framework=framework(rate=-2), deferrable=True)


def play_dag() -> dict[str, Any]:
    """The states of its tasks, and their values."""
    run = dag.test(logical_date=datetime(2026, 1, 2, tzinfo=UTC))
    return {ti.task_id: [ti.state, ti.xcom_pull(task_ids=ti.task_id)] for ti in run.get_task_instances()}


class Play:
    """A task that waits for a file, in tries without Airflow's task runner."""

    def __init__(self, folder: Path, name: str, **options: Any) -> None:
        self.file = folder / name
        waits = frameworkcontroller.function(
            train, kwargs={"day": name, "until": str(self.file)}, image="local", generate_name="waits"
        )
        self.operator = FrameworkOperator(task_id=name, framework=waits, **options)
        ti = SimpleNamespace(dag_id="a dag", task_id=name, run_id="manual__2026-01-02T00:00:00+00:00", map_index=-1)
        self.context = {"ti": ti}
        self.selector = ",".join(f"{key}={value}" for key, value in labels_of(ti).items())

    def begin(self) -> Any:
        """Execute until the task is deferred. Return its deferral."""
        try:
            self.operator.execute(self.context)
        except TaskDeferred as deferral:
            return deferral
        raise AssertionError("it is not deferred")

    def frameworks(self, cluster: frameworkcontroller.Cluster) -> list[str]:
        """The phases of its Frameworks."""
        return [str(run.status.phase) for run in cluster.list(self.selector)]


async def first(trigger: FrameworkTrigger) -> Any:
    """The payload of the trigger's event."""
    return (await anext(trigger.run())).payload


def again(trigger: FrameworkTrigger) -> FrameworkTrigger:
    """The trigger as the triggerer makes it."""
    path, arguments = trigger.serialize()
    assert path == "frameworkcontroller.integrations.airflow.FrameworkTrigger"
    return FrameworkTrigger(**json.loads(json.dumps(arguments)))


def play_retry(cluster: frameworkcontroller.Cluster, folder: Path) -> dict[str, Any]:
    """A second try attaches to the running Framework; once its end is taken, a cleared task submits another one."""
    play = Play(folder, "retried", deferrable=True)
    names = [play.begin().trigger.name for _ in range(2)]
    play.file.touch()
    deferral = play.begin()
    trigger = again(deferral.trigger)
    trigger.poll_interval = 0.1
    kubeconfig = os.environ["KUBECONFIG"]

    def hang_up(_reader: Any, writer: asyncio.StreamWriter) -> None:
        os.environ["KUBECONFIG"] = kubeconfig
        writer.close()

    async def watched() -> Any:
        """Watch, while at first no API server answers."""
        async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as away:
            address = "http://{}:{}".format(*away.sockets[0].getsockname())
            os.environ["KUBECONFIG"] = str(folder / "away")
            Path(os.environ["KUBECONFIG"]).write_text(AWAY.replace("ADDRESS", address))
            return await first(trigger)

    event = asyncio.run(watched())
    value = getattr(play.operator, deferral.method_name)(play.context, event)
    return {
        "attached": len({*names, deferral.trigger.name}) == 1,
        "away": os.environ["KUBECONFIG"] == kubeconfig,
        "value": value,
        "cleared": play.begin().trigger.name != names[0],
        "frameworks": len(play.frameworks(cluster)),
    }


def play_missed_end(cluster: frameworkcontroller.Cluster, folder: Path) -> Any:
    """A try whose predecessor was lost takes the value of the Framework that has ended meanwhile."""
    play = Play(folder, "missed", deferrable=True)
    play.file.touch()
    cluster.get(play.begin().trigger.name).wait()
    play.operator.deferrable = False
    return [play.operator.execute(play.context), play.frameworks(cluster)]


def play_kill(cluster: frameworkcontroller.Cluster, folder: Path) -> Any:
    """A signal during `execute`, as Airflow handles it."""
    play = Play(folder, "killed")
    signal.signal(signal.SIGTERM, lambda *_: play.operator.on_kill())

    def kill() -> None:
        while not (found := cluster.list(play.selector)):
            time.sleep(0.05)
        found[0].wait("Running")
        os.kill(os.getpid(), signal.SIGTERM)

    killing = threading.Thread(target=kill)
    killing.start()
    try:
        play.operator.execute(play.context)
    except AirflowException as error:
        killing.join()
        return [str(error).partition(": ")[2], play.frameworks(cluster)]


def play_timeout(cluster: frameworkcontroller.Cluster, folder: Path) -> Any:
    """A deferral that Airflow has ended."""
    play = Play(folder, "late", deferrable=True, execution_timeout=timedelta(seconds=5))
    deferral = play.begin()
    try:
        play.operator.resume_execution("__fail__", {"error": "Trigger timeout"}, play.context)
    except TaskDeferralTimeout:
        cluster.get(deferral.trigger.name).wait()
        return [deferral.timeout.total_seconds(), play.frameworks(cluster)]


def play_ended(cluster: frameworkcontroller.Cluster, folder: Path) -> Any:
    """A user ends a deferred task; deletes the Framework of another one."""
    play = Play(folder, "ended", deferrable=True)
    trigger = again(play.begin().trigger)
    asyncio.run(trigger.on_kill())
    stopped = asyncio.run(first(trigger))
    cluster.get(trigger.name).delete()
    gone = asyncio.run(first(trigger))
    messages = []
    for event in (stopped, gone):
        try:
            play.operator.execute_complete(play.context, event)
        except AirflowException as error:
            messages.append(str(error).replace(trigger.name, "NAME"))
    return messages


if __name__ == "__main__":
    place = Path(sys.argv[1])
    with frameworkcontroller.connect() as there:
        answer = {
            "dag": play_dag(),
            "retry": play_retry(there, place),
            "missed": play_missed_end(there, place),
            "kill": play_kill(there, place),
            "timeout": play_timeout(there, place),
            "ended": play_ended(there, place),
        }
    print(json.dumps(answer))
