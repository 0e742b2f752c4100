"""Fits a line to noisy points with JAX, data-parallel; coordinator, number of processes and rank are variables."""

import os

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

rank, size = int(os.environ["JAX_PROCESS_ID"]), int(os.environ["JAX_NUM_PROCESSES"])
# JAX's own detection of clusters would ask the API server for a Job.
jax.distributed.initialize(os.environ["JAX_COORDINATOR_ADDRESS"], size, rank, cluster_detection_method="deactivate")
mesh = jax.make_mesh((jax.device_count(),), ("data",))
split, everywhere = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))


@jax.jit
def train(line, x, y):
    """One step down the gradient over the points of all processes."""
    loss, slope = jax.value_and_grad(lambda line: ((line[0] * x + line[1] - y) ** 2).mean())(line)
    return line - 0.1 * slope, loss


line = jax.device_put(np.zeros(2, np.float32), everywhere)
generator = np.random.default_rng(rank)
for step in range(201):
    x = generator.uniform(-1, 1, 64 * jax.local_device_count()).astype(np.float32)
    y = 3 * x + 1 + generator.normal(0, 0.1, x.size).astype(np.float32)
    line, loss = train(line, *(jax.make_array_from_process_local_data(split, points) for points in (x, y)))
    if rank == 0 and step % 50 == 0:
        print(f"step {step}: loss {loss:.4f}", flush=True)
weight, bias = np.asarray(line)
print(f"worker {rank} of {size}: y = {weight:.2f} x + {bias:.2f}", flush=True)
