"""Add workers to a Framework that runs."""

import frameworkcontroller as fc

job = fc.command(["python3", "-c", "import time; time.sleep(3600)"], tasks=2, image="python:3.12-slim", name="scale")
with fc.connect() as cluster, cluster.submit(job) as run:
    run.wait("Running")
    run.scale(worker=4)
    for status in run.watch():
        running = status.roles["worker"].phases["Running"]
        print(f"{running} workers run")
        if running == 4:
            break
    run.stop()
    print(run.wait())
