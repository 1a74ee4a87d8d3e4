"""Plays the user's PyTorch program that runs out of GPU memory. What PyTorch says of it is not caught.

usage: train.py whole     takes blocks of 2 GiB until there is no more
       train.py pieces    cuts nearly all of the card into pieces of its own pool, gives every other one back, and asks
                          for one block that is larger than each piece
"""
import sys

import torch


def block(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda").fill_(7)


def whole():
    held = []
    while True:
        held.append(block(2 << 30))


def pieces():
    free = torch.cuda.mem_get_info()[0]
    segment = (free // 32) >> 21 << 21  # in the driver's pages of 2 MiB
    held = []
    while torch.cuda.mem_get_info()[0] > 2 * segment:
        batch = block(segment)  # the pool keeps its memory, and gives it out in parts
        del batch
        held += [block(segment // 4) for _ in range(4)]
    del held[::2]
    block(4 * segment)


if __name__ == "__main__":
    {"whole": whole, "pieces": pieces}[sys.argv[1]]()
