"""A small training loop: prints, for each step, when it ended (CLOCK_BOOTTIME) and how long it took, in seconds.

usage: train.py SECONDS
"""
import sys
import time

import torch

model = torch.nn.Sequential(*[layer for _ in range(6) for layer in (torch.nn.Linear(4096, 4096), torch.nn.ReLU())]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
data = torch.randn(2048, 4096, device="cuda")


def step():
    optimizer.zero_grad()
    loss = (model(data) - data).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()  # waits for the GPU


for _ in range(20):
    step()
print("training", flush=True)
end = time.clock_gettime(time.CLOCK_BOOTTIME) + float(sys.argv[1])
now = time.clock_gettime(time.CLOCK_BOOTTIME)
while now < end:
    step()
    then, now = now, time.clock_gettime(time.CLOCK_BOOTTIME)
    print(f"step {now:.6f} {now - then:.6f}", flush=True)
