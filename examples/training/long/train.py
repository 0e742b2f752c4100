"""A training that reports its progress, writes checkpoints, and continues at the last one. It needs only Python.

The workers go from step to step together, as in an all-reduce: each waits until all have reached the step. Two faults
are built in: a worker on the node BAD_NODE fails, and worker 1 hangs once.
"""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

STEPS = 60
STEP_SECONDS = 0.5
CHECKPOINT_STEPS = 10
FAILS_AT, HANGS_AT = 16, 27

FOLDER = Path("/checkpoints")
CHECKPOINT, HUNG = FOLDER / "step", FOLDER / "hung"
ATTEMPT = FOLDER / f"attempt-{os.environ['FC_FRAMEWORK_ATTEMPT_ID']}"
WORKER, WORKERS = int(os.environ["FC_TASK_INDEX"]), int(os.environ["WORKERS"])


def report(step: int, *, checkpoint: bool = False) -> None:
    """Tell the controller. A failure does not stop the training."""
    if "KUBEFLOW_TRAINER_SERVER_URL" not in os.environ:
        return
    status = {"progressPercentage": 100 * step // STEPS, "step": step, "checkpoint": checkpoint}
    token = Path(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read_text()
    request = urllib.request.Request(
        os.environ["KUBEFLOW_TRAINER_SERVER_URL"],
        json.dumps({"trainerStatus": status}).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    context = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
    try:
        urllib.request.urlopen(request, timeout=5, context=context).close()
    except (OSError, urllib.error.URLError) as error:
        print(f"cannot report step {step}: {error}", flush=True)


def save(step: int) -> None:
    """Write a checkpoint, and report it."""
    new = CHECKPOINT.with_suffix(".new")
    new.write_text(str(step))
    new.replace(CHECKPOINT)
    report(step, checkpoint=True)
    print(f"checkpoint at step {step}", flush=True)


def notice() -> str:
    """The reason and the deadline of an end that is asked for, "" if there is none."""
    try:
        return Path(os.environ["FC_NOTICE_FILE"]).read_text().strip()
    except (KeyError, FileNotFoundError):
        return ""


def meet(step: int) -> None:
    """Wait until all workers have reached the step."""
    (ATTEMPT / str(WORKER)).write_text(str(step))
    while not all(reached(worker) >= step for worker in range(WORKERS)):
        time.sleep(0.02)


def reached(worker: int) -> int:
    """The step of a worker."""
    try:
        return int((ATTEMPT / str(worker)).read_text() or -1)
    except FileNotFoundError:
        return -1


def compute(step: int) -> None:
    """Take a step. Here are the faults."""
    time.sleep(STEP_SECONDS)
    if step == FAILS_AT and os.environ["NODE"] == os.environ.get("BAD_NODE"):
        sys.exit(f"uncorrectable ECC error on {os.environ['NODE']}")
    if step == HANGS_AT and WORKER == 1 and not HUNG.exists():
        HUNG.touch()
        print("worker 1 hangs", flush=True)
        time.sleep(3600)


def main() -> None:
    """Train."""
    ATTEMPT.mkdir(exist_ok=True)
    first = int(CHECKPOINT.read_text()) if CHECKPOINT.exists() else 0
    print(f"worker {WORKER} begins after step {first} on {os.environ['NODE']}", flush=True)
    meet(first)
    for step in range(first + 1, STEPS + 1):
        compute(step)
        meet(step)
        if WORKER != 0:
            continue
        if why := notice():
            print(f"notice: {why}", flush=True)
            save(step)
            time.sleep(3600)  # The end follows the checkpoint.
        elif step % CHECKPOINT_STEPS == 0:
            save(step)
        elif step % 2 == 0:
            report(step)


main()
