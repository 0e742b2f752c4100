"""A function that trains, in a module that the Tasks can import: they have no Kubeflow."""

import os


def train(rate: float) -> float:
    """Print its place, and fail on node 2 if the rate is negative."""
    node = int(os.environ["FC_TASK_INDEX"])
    print(f"node {node} of {os.environ['WORLD']} trains")
    if rate < 0 and node == 2:
        raise ValueError("the rate is negative")
    return rate * node
