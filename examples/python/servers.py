"""Train with two parameter servers and four workers. The workers decide; then the servers end, too."""

import frameworkcontroller as fc

python = ["python3", "-u", "parameters.py"]
ready = {"name": "main", "readinessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 1}}
ps = fc.Role(name="ps", tasks=2, image="python:3.12-slim", command=[*python, "serve", "{{FC_POD_NAME}}"])
worker = fc.Role(
    tasks=4,
    image="python:3.12-slim",
    command=[*python, "train", "{{FC_HOSTS:ps:8000}}"],
    completion=fc.Completion(min_failed=1, min_succeeded=4),
    depends_on={"ps": "Ready"},
)
roles = [ps.replaced(pod={"spec": {"containers": [ready]}}), worker]
job = fc.Framework(name="servers", roles=roles, network=True, code=fc.Code.files("parameters.py"))
with fc.connect() as cluster, cluster.submit(job) as run:
    for line in run.logs(role="worker", follow=True):
        print(line)
    print(run.result().phase)
