"""A PyTorch process that forks through torch.multiprocessing and is killed; its child sleeps on.

usage: forkhold.py MIB
prints "ready pid=PID gpu=UUID bytes=N child=PID holder=PID" from the child once the parent, PID, is dead.
"""
import os
import signal
import sys
import time

import torch
import torch.multiprocessing


def hold(parent, line):
    os.setsid()
    signal.alarm(600)  # were it ever forgotten
    while os.getppid() == parent:
        time.sleep(0.001)
    print(f"{line} child={os.getpid()} holder={os.getpid()}", flush=True)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    while True:
        signal.pause()


if __name__ == "__main__":
    held = [torch.empty(256 << 20, dtype=torch.uint8, device="cuda").fill_(7) for _ in range(int(sys.argv[1]) // 256)]
    torch.cuda.synchronize()
    uuid = torch.cuda.get_device_properties(0).uuid
    ready = f"ready pid={os.getpid()} gpu=GPU-{uuid} bytes={torch.cuda.memory_allocated()}"
    child = torch.multiprocessing.get_context("fork").Process(target=hold, args=(os.getpid(), ready))
    child.start()
    os.kill(os.getpid(), signal.SIGKILL)
