"""Trains a tiny language model, made on the spot, to count. Nothing in this file is about FrameworkController."""

import argparse
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Counting(torch.utils.data.Dataset):
    """Rows of successive numbers."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        row = (index + torch.arange(16)) % 100
        return {"input_ids": row, "labels": row}


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1000)
steps = parser.parse_args().steps

shape = {"vocab_size": 100, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2}
model = GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=None, eos_token_id=None, loss_type="ForCausalLM"))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        max_steps=steps,
        learning_rate=3e-3,
        logging_steps=50,
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    Trainer(model, arguments, train_dataset=Counting()).train()
guesses = model(torch.arange(16)[None]).logits[0].argmax(-1)
print(f"after {steps} steps, 16 follows 15: {guesses[-1].item() == 16}", flush=True)
