"""Why did it fail? The Task that failed first, its place, its last words, and the rule that decided."""

import os

import frameworkcontroller as fc


def load(shards):
    print("loading", shards[int(os.environ["FC_TASK_INDEX"])])


if __name__ == "__main__":
    with fc.connect() as cluster:
        run = cluster.submit(fc.function(load, tasks=4, args=[["a", "b", "c"]], image="python:3.12-slim"))
        try:
            run.result()
        except fc.FrameworkFailed as error:
            failure = error.result.first_failure
            print(f"{failure.name} on {failure.node}, attempt {failure.attempt}: {failure.message}")
            print(failure.rule, failure.traceback, *failure.log_tail, run.explain(), sep="\n")
