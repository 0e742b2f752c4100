"""Call a function in four Tasks, and use its values; with fc.connect() in place of fc.local(), in the cluster."""

import os
import random

import frameworkcontroller as fc


def estimate(points):
    draw = random.Random(int(os.environ["FC_TASK_INDEX"])).random
    return 4 * sum(draw() ** 2 + draw() ** 2 < 1 for _ in range(points)) / points


if __name__ == "__main__":
    with fc.local() as cluster:
        result = cluster.run(fc.function(estimate, tasks=4, args=[100_000], image="python:3.12-slim"))
    values = result.values["worker"]
    print(f"pi is about {sum(values) / len(values):.2f}")
