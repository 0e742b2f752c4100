"""Run a training script on 4 nodes with 8 GPUs each, with its logs, and print the result."""

import frameworkcontroller as fc

train = fc.torchrun(
    "ddp.py",
    nodes=4,
    gpus_per_node=8,
    image="pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime",
    code=fc.Code.files("../training/pytorch/ddp/ddp.py"),
)
with fc.connect() as cluster:
    result = cluster.run(train)
print(f"{result.phase} after {result.duration:.0f} s, {result.retries} retries")
