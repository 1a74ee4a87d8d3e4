"""A PyTorch job with DataLoader workers that waits to be killed: they notice after some seconds, and end.

usage: workers.py MIB [WORKERS]
prints "ready pid=PID gpu=UUID bytes=N child=PID..." once the workers have begun.
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
    held = [torch.empty(256 << 20, dtype=torch.uint8, device="cuda").fill_(7) for _ in range(int(sys.argv[1]) // 256)]
    torch.cuda.synchronize()
    # Forked after CUDA was initialised: the workers inherit the driver's descriptors, as real ones do.
    batches = iter(DataLoader(Numbers(), batch_size=32, num_workers=int(sys.argv[2]) if len(sys.argv) > 2 else 4,
                              multiprocessing_context="fork"))
    next(batches)
    children = "".join(f" child={worker.pid}" for worker in batches._workers)
    uuid = torch.cuda.get_device_properties(0).uuid
    print(f"ready pid={os.getpid()} gpu=GPU-{uuid} bytes={torch.cuda.memory_allocated()}{children}", flush=True)
    while True:
        signal.pause()
