"""Computes pi: each rank integrates its part of 4 / (1 + x^2) from 0 to 1."""

from mpi4py import MPI

STEPS = 1_000_000
world = MPI.COMM_WORLD
part = sum(4 / (1 + ((step + 0.5) / STEPS) ** 2) for step in range(world.rank, STEPS, world.size)) / STEPS
print(f"rank {world.rank} of {world.size} is on {MPI.Get_processor_name()}")
pi = world.reduce(part)
if world.rank == 0:
    print(f"pi is {pi:.6f}")
