"""A PyTorch job with DataLoader workers and most of the card's memory. It goes on until it is killed.

usage: loader.py MIB
"""
import os
import signal
import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 1 << 40

    def __getitem__(self, i):
        return torch.full((64,), float(i % 97))


if __name__ == "__main__":
    signal.alarm(300)  # were it ever forgotten
    held = [torch.empty(256 << 20, dtype=torch.uint8, device="cuda") for _ in range(int(sys.argv[1]) // 256)]
    for block in held:
        block.fill_(7)
    uuid = getattr(torch.cuda.get_device_properties(0), "uuid", "")
    # Forked after CUDA was initialised: the workers inherit the driver's descriptors, as real ones do.
    for n, batch in enumerate(DataLoader(Numbers(), batch_size=32, num_workers=4)):
        held[n % len(held)][:64] = batch[0].to("cuda").to(torch.uint8)
        if n == 8:
            torch.cuda.synchronize()
            print(f"ready pid={os.getpid()} gpu=GPU-{uuid} bytes={torch.cuda.memory_allocated()}", flush=True)
