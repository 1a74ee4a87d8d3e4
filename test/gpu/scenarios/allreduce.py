"""Sums a tensor over all GPUs by NCCL, one process a GPU, until it is ended."""
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as processes


def rank(number, count):
    torch.cuda.set_device(number)
    dist.init_process_group("nccl", rank=number, world_size=count)
    while True:
        data = torch.ones(1 << 28, device="cuda")
        dist.all_reduce(data)
        assert data[0].item() == count
        if number == 0:
            print("ready", flush=True)


if __name__ == "__main__":
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29531", NCCL_SOCKET_IFNAME="lo")
    gpus = torch.cuda.device_count()
    processes.spawn(rank, args=(gpus,), nprocs=gpus)
