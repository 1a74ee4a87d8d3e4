"""Programs with an error of their own, which the driver reports as an Xid, and one without.

usage: faults.py assert    an index beyond its tensor: a device-side assert, Xid 43
       faults.py illegal   a read far beyond an allocation, Xid 31 or 13
       faults.py busy      works until it is ended
"""
import sys

import torch


class Beyond:
    """A view of a small allocation that claims to have 1 TiB."""

    def __init__(self, memory):
        self.__cuda_array_interface__ = {
            "shape": (1 << 38,), "typestr": "<f4", "data": (memory.data_ptr(), False), "version": 3}


memory = torch.zeros(1 << 20, device="cuda")
print("ready", flush=True)
if sys.argv[1] == "assert":
    memory[torch.tensor([1 << 40], device="cuda")].sum().item()
elif sys.argv[1] == "illegal":
    print(torch.as_tensor(Beyond(memory), device="cuda")[1 << 30:].sum().item())
square = torch.ones(4096, 4096, device="cuda")
while True:
    square = (square @ square).clamp(0, 1)
    torch.cuda.synchronize()
