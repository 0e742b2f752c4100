"""Train with two parameter servers and four workers. The workers decide; then the servers end, too."""

import frameworkcontroller as fc

image, python = "python:3.12-slim", ["python3", "-u", "parameters.py"]
ready = {"spec": {"containers": [{"name": "main", "readinessProbe": {"tcpSocket": {"port": 8000}}}]}}
ps = fc.Role(name="ps", tasks=2, image=image, command=[*python, "serve", "{{FC_POD_NAME}}"], pod=ready)
worker = fc.Role(
    tasks=4,
    image=image,
    command=[*python, "train", "{{FC_HOSTS:ps:8000}}"],
    completion=fc.Completion(min_failed=1, min_succeeded=4),
    depends_on={"ps": "Ready"},
)
job = fc.Framework(name="servers", roles=[ps, worker], network=True, code=fc.Code.files("parameters.py"))
with fc.connect() as cluster, cluster.submit(job) as run:
    for line in run.logs(role="worker", follow=True):
        print(line)
    print(run.result().phase)
