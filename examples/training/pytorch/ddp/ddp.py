"""Fits a line to noisy points with DistributedDataParallel; rank, world size and master are in the environment."""

import os

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

GPU = torch.cuda.is_available()
distributed.init_process_group("nccl" if GPU else "gloo")
rank, size = distributed.get_rank(), distributed.get_world_size()
device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if GPU else torch.device("cpu")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(1, 1).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(rank)
for step in range(201):
    x = torch.rand(64, 1, generator=generator) * 2 - 1
    y = 3 * x + 1 + torch.randn(64, 1, generator=generator) / 10
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()  # sums the gradients over all workers
    optimizer.step()
    if rank == 0 and step % 50 == 0:
        print(f"step {step}: loss {loss.item():.4f}", flush=True)
weight, bias = (parameter.item() for parameter in model.parameters())
print(f"worker {rank} of {size}: y = {weight:.2f} x + {bias:.2f}", flush=True)
distributed.destroy_process_group()
