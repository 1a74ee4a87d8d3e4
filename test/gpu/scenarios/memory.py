"""A PyTorch job that takes memory, in the ways in which jobs run out of it. What PyTorch says of that is not caught.

usage: memory.py take MIB       MIB in blocks of 2 GiB, 0: until memory runs out; ends if all of it could be had
       memory.py pieces         cuts its own pool into pieces, gives half of them back, and asks for a larger block
prints "ready pid=PID gpu=UUID bytes=N" before the allocation that may fail last.
"""
import os
import sys

import torch

MIB = 1 << 20


def block(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda").fill_(7)


def ready():
    torch.cuda.synchronize()
    uuid = getattr(torch.cuda.get_device_properties(0), "uuid", "")
    print(f"ready pid={os.getpid()} gpu=GPU-{uuid} bytes={torch.cuda.memory_allocated()}", flush=True)


def take(mib):
    held = [block(64)]
    ready()
    while mib == 0 or len(held) * 2048 <= mib:
        held.append(block(2048))
    torch.cuda.synchronize()


def pieces():
    free = torch.cuda.mem_get_info()[0] // MIB
    segment = free // 32 // 8 * 8  # of the pool, a whole number of pages
    held = []
    while torch.cuda.mem_get_info()[0] // MIB > 2 * segment:
        large = block(segment)  # the largest batch; the pool keeps its memory when it goes
        del large
        held += [block(segment // 4) for _ in range(4)]
    del held[::2]
    ready()
    held.append(block(4 * segment))


if __name__ == "__main__":
    if sys.argv[1] == "take":
        take(int(sys.argv[2]))
    else:
        pieces()
