"""Train with two workers, four, then three, and kill some on the way; then compare with training alone.

    .venv/bin/python examples/training/elastic/walkthrough.py [PYTHON]

It starts a local cluster and cleans up. PYTHON is the interpreter of the workers, by default python3; they use PyTorch
if it has that. The first failed check ends it with an error.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
FRAMEWORK = "/apis/frameworkcontroller.microsoft.com/v1/namespaces/default/frameworks/elastic"
PATIENCE_SECONDS = 60


class Cluster:
    """The API server, and the output of the workers so far."""

    def __init__(self, kubeconfig):
        config = yaml.safe_load(kubeconfig.read_text())
        self.url = config["clusters"][0]["cluster"]["server"]
        self.token = config["users"][0]["user"]["token"]
        self.heard = {}  # number of lines by Pod
        self.lines = []

    def request(self, method, path, body=None, kind="application/json"):
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        request = urllib.request.Request(self.url + path, body and json.dumps(body).encode(), headers, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read()

    def status(self):
        return json.loads(self.request("GET", FRAMEWORK)).get("status") or {}

    def scale(self, number):
        """Patch taskNumber together with the policy of the same number."""
        role = "/spec/taskRoles/0"
        fields = {"/taskNumber": number, "/frameworkAttemptCompletionPolicy/minFailedTaskCount": number}
        patch = [{"op": "replace", "path": role + field, "value": value} for field, value in fields.items()]
        self.request("PATCH", FRAMEWORK, patch, "application/json-patch+json")

    def listen(self):
        """Print the new output of the workers."""
        for pod in json.loads(self.request("GET", "/api/v1/namespaces/default/pods"))["items"]:
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            try:
                text = self.request("GET", f"/api/v1/namespaces/default/pods/{name}/log").decode()
            except urllib.error.HTTPError:
                continue  # not started, or just gone
            new = text.splitlines()[self.heard.get(uid, 0) :]
            self.heard[uid] = self.heard.get(uid, 0) + len(new)
            self.lines += new
            for line in new:
                print("   ", line, flush=True)

    def until(self, pattern, count=1):
        """Wait until `count` lines since the last wait match."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(found := [line for line in self.lines if re.search(pattern, line)]) < count:
            if time.monotonic() > deadline:
                sys.exit(f"no output within {PATIENCE_SECONDS} s: {pattern}\n{json.dumps(self.status(), indent=2)}")
            time.sleep(0.1)
            self.listen()
        self.lines.clear()
        return found

    def processes(self):
        """The process of each running worker."""
        pods = [f"elastic-worker-{task['index']}" for task in self.tasks() if not task["deletionPending"]]
        logs = [self.request("GET", f"/api/v1/namespaces/default/pods/{pod}/log").decode() for pod in pods]
        return [int(re.findall(r"process (\d+)", log)[-1]) for log in logs]

    def tasks(self):
        return self.status()["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"]


def say(text):
    print(f"\n# {text}", flush=True)


def check(holds, what):
    if not holds:
        sys.exit(f"not so: {what}")


def losses(lines):
    return [float(loss) for line in lines for loss in re.findall(r"loss ([\d.]+)", line)]


def walk(cluster, folder):
    for document in yaml.safe_load_all((HERE / "elastic.yaml").read_text()):
        if document["kind"] == "Framework":
            pod = document["spec"]["taskRoles"][0]["task"]["pod"]["spec"]
            pod["volumes"][1]["hostPath"]["path"] = str(folder)
            pod["containers"][0]["env"][0]["value"] = "1000000"  # it continues until the file `enough` exists
        kinds = {"Framework": FRAMEWORK.rsplit("/", 1)[0]}
        group, plural = document["apiVersion"], document["kind"].lower() + "s"
        prefix = "/apis/" if "/" in group else "/api/"
        path = kinds.get(document["kind"], f"{prefix}{group}/namespaces/default/{plural}")
        cluster.request("POST", path, document)
    (first, *_) = losses(cluster.until("loss .* with 2$"))

    say("2 -> 4")
    cluster.scale(4)
    cluster.until("loss .* with 4$")

    say("kill -9 worker 1")
    os.kill(cluster.processes()[1], signal.SIGKILL)
    cluster.until(r"worker 1: process \d+ begins")
    cluster.until("loss .* with 4$")
    check([task["attemptStatus"]["id"] for task in cluster.tasks()] == [0, 1, 0, 0], "worker 1 was retried, alone")

    say("4 -> 3")
    cluster.scale(3)
    cluster.until("loss .* with 3$")

    say("kubectl delete pod elastic-worker-0, which leads")
    cluster.request("DELETE", "/api/v1/namespaces/default/pods/elastic-worker-0")
    cluster.until(r"worker 0: step \d+: I am 0 of \[0, 1, 2\]")
    cluster.until("loss .* with 3$")

    say("kill -9 all of them: they begin at the checkpoint")
    for process in cluster.processes():
        os.kill(process, signal.SIGKILL)
    begun = cluster.until("begins at step", 3)
    check(all(int(re.findall(r"step (\d+)", line)[0]) > 0 for line in begun), "all began at a checkpoint")
    cluster.until("loss .* with 3$")
    check(cluster.status()["attemptStatus"]["id"] == 0, "it is still the first attempt of the Framework")

    say("enough")
    (folder / "enough").touch()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (status := cluster.status())["state"] != "Completed":
        cluster.listen()
        check(time.monotonic() < deadline, "it completed")
        time.sleep(0.05)
    retries = [task["retryPolicyStatus"]["totalRetriedCount"] for task in cluster.tasks()]
    print(f"Framework: {status['attemptStatus']['completionStatus']['phrase']}, retries of its Tasks: {retries}")
    check(status["attemptStatus"]["completionStatus"]["code"] == 0, "it succeeded")
    return first


def main():
    python = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else None
    environment = dict(os.environ)
    if python is not None:
        environment["PATH"] = f"{python.parent}:{environment['PATH']}"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "checkpoints")
        folder.mkdir()
        kubeconfig = Path(scratch, "kubeconfig")
        program = Path(sys.executable).with_name("frameworkcontroller")
        up = [program, "local", "up", "--kubeconfig", kubeconfig, "--log-level", "error"]
        with subprocess.Popen(up, env=environment, stdout=subprocess.PIPE, text=True) as local:
            try:
                check(any("export KUBECONFIG" in line for line in local.stdout), "the local cluster started")
                first = walk(Cluster(kubeconfig), folder)
            finally:
                local.terminate()
        together = json.loads((folder / "result.json").read_text())

        say(f"the same {together['step']} steps, alone")
        alone = {**environment, "STEPS": str(together["step"]), "CHECKPOINTS": scratch}
        subprocess.run([python or "python3", HERE / "train.py"], env=alone, stdout=subprocess.DEVNULL, check=True)
        single = json.loads(Path(scratch, "result.json").read_text())
    difference = max(abs(one - other) for one, other in zip(together["state"], single["state"], strict=True))
    print(f"loss at first {first:.4f}, at last {together['loss']:.6f}; alone {single['loss']:.6f}")
    print(f"the two models differ by {difference:.1e} at most")
    check(together["loss"] < first / 2, "the loss decreased")
    check(difference < 1e-9, "together and alone give the same model")


if __name__ == "__main__":
    main()
