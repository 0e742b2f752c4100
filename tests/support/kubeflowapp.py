"""Use Kubeflow's SDK on a local cluster, in an environment that has it, and print the results as JSON."""

import json
from typing import Any

from kubeflow.trainer import CustomTrainer, CustomTrainerContainer
from kubeflow.trainer.options import Name
from kubeflowtrain import train

import frameworkcontroller
from frameworkcontroller.integrations.kubeflow import trainer_client


def refusal(call: Any) -> str:
    """The error of a call."""
    try:
        call()
    except (ValueError, RuntimeError, TimeoutError) as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def play() -> dict[str, Any]:
    """Train, in success and in failure."""
    with frameworkcontroller.local() as cluster:
        client = trainer_client(cluster)
        seen: list[str] = []
        trainer = CustomTrainer(func=train, func_args={"rate": 0.5}, num_nodes=4, env={"WORLD": "4"})
        good = client.train(runtime="python", trainer=trainer, options=[Name("good")])
        job = client.wait_for_job_status(good, polling_interval=1, callbacks=[lambda one: seen.append(one.status)])
        logs = list(client.get_job_logs(good, step="node-3"))
        trainer.func_args = {"rate": -1}
        bad = client.train(runtime="python", trainer=trainer)
        failure = refusal(lambda: client.wait_for_job_status(bad))
        listed = [(one.name, one.status) for one in client.list_jobs()]
        events = {event.reason for event in client.get_job_events(bad)}
        client.delete_job(bad)
        return {
            "runtimes": [one.name for one in client.list_runtimes()],
            "job": [job.name, job.status, job.num_nodes, job.runtime.name, [step.status for step in job.steps]],
            "seen": seen[-1],
            "logs": logs,
            "progress": cluster.get(good).status.object["spec"]["progress"],
            "values": cluster.get(good).result().values["worker"],
            "failure": failure.replace(bad, "BAD"),
            "listed": [(name.replace(bad, "BAD"), status) for name, status in listed],
            "failed": "TaskFailed" in events,
            "gone": refusal(lambda: client.get_job(bad)).replace(bad, "BAD"),
            "packages": refusal(lambda: client.train(trainer=CustomTrainer(func=train, packages_to_install=["torch"]))),
            "runtime": refusal(lambda: client.get_runtime("mpi")),
            "container": refusal(
                lambda: client.train(trainer=CustomTrainerContainer(image="x", resources_per_node={"tpu": 1}))
            ),
        }


if __name__ == "__main__":
    print(json.dumps(play()))
