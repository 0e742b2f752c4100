"""Fits a line to noisy points with DistributedDataParallel, on as many workers as there are.

torchrun restarts it on every change of membership. It continues at the newest checkpoint that any worker has.
"""

import sys
import time
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

STEPS, STEP_SECONDS = 500, 0.02
CHECKPOINT = Path(sys.argv[1])
GPU = torch.cuda.is_available()

distributed.init_process_group("nccl" if GPU else "gloo")
rank, size = distributed.get_rank(), distributed.get_world_size()
device = torch.device("cuda" if GPU else "cpu")
torch.manual_seed(0)
line, begin = nn.Linear(1, 1).to(device), torch.zeros(1, dtype=torch.int64, device=device)
if CHECKPOINT.exists():
    parameters, begin = torch.load(CHECKPOINT, map_location=device)
    line.load_state_dict(parameters)
begins = [torch.zeros_like(begin) for _ in range(size)]
distributed.all_gather(begins, begin)
newest = max(range(size), key=begins.__getitem__)
for tensor in (begin, *line.parameters()):
    distributed.broadcast(tensor.data, newest)
print(f"worker {rank} of {size} begins at step {begin.item()}", flush=True)

model = DistributedDataParallel(line)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(begin.item(), STEPS):
    x = torch.rand(64, 1, device=device) * 2 - 1
    y = 3 * x + 1 + torch.randn(64, 1, device=device) / 10
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()  # averages the gradients of all workers
    optimizer.step()
    time.sleep(STEP_SECONDS)
    if (step + 1) % 10 == 0:
        new = CHECKPOINT.with_suffix(".new")
        torch.save((line.state_dict(), begin.new_tensor([step + 1])), new)
        new.rename(CHECKPOINT)
    if rank == 0 and step % 100 == 0:
        print(f"step {step}: loss {loss.item():.4f}, with {size}", flush=True)
weight, bias = (parameter.item() for parameter in model.parameters())
print(f"worker {rank} of {size}: y = {weight:.2f} x + {bias:.2f}", flush=True)
distributed.destroy_process_group()
