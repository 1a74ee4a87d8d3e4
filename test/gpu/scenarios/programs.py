"""Programs that take all of a GPU's memory through one framework. What the framework says when there is no more is its own.

usage: programs.py NAME          ends by the framework's exception
       programs.py NAME slowly   does so over seconds
       programs.py NAME held    takes a little, and waits
       programs.py NAME half [F] takes half of the GPU; PyTorch may have the fraction F of it
       programs.py NAME caught   logs the exception, frees what it has, goes on with less and ends well
       programs.py rank          a task of a step, with PyTorch: the third takes all, the others some, and wait
NAME: torch, jax, cupy, numba, triton (a kernel that wants more shared memory than there is), onnx (without a GPU: host
memory, under a limit of address space that the caller sets)
"""
import logging
import os
import sys
import time

GIB = 1 << 30
WAIT = 300  # seconds that the other tasks would wait for the third: longer than it needs


def torch_blocks():
    import torch
    while True:
        yield torch.empty(2 * GIB, dtype=torch.uint8, device="cuda").fill_(7)


def jax_blocks():
    import jax.numpy as jnp
    while True:
        yield jnp.full((2, GIB), 7, dtype=jnp.uint8).block_until_ready()


def cupy_blocks():
    import cupy
    while True:
        yield cupy.full(2 * GIB, 7, dtype=cupy.uint8)


def numba_blocks():
    from numba import cuda
    while True:
        yield cuda.device_array(2 * GIB, dtype="uint8")


def triton_blocks():
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def product(a, b, c, N: tl.constexpr):
        at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
        tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))

    n = 512
    a, b, c = (torch.ones(n * n, device="cuda", dtype=torch.float32) for _ in range(3))
    product[(1,)](a, b, c, N=n)
    yield c
    raise SystemExit("the kernel ran all the same")


def onnx_blocks():
    import numpy
    import onnxruntime
    from onnx import TensorProto, helper
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    nodes = [helper.make_node("Expand", ["x", "wide"], ["e"]), helper.make_node("Exp", ["e"], ["y"])]
    wide = helper.make_tensor("wide", TensorProto.INT64, [2], [1, 1 << 18])
    graph = helper.make_graph(nodes, "wide", ends[:1], ends[1:], [wide])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rows = 1 << 12  # 4 GiB
    while True:
        yield session.run(["y"], {"x": numpy.ones((rows, 1), dtype=numpy.float32)})
        rows *= 2


def take(name, pause=0):
    held = []
    for block in globals()[name + "_blocks"]():
        held.append(block)
        time.sleep(pause)


def caught(name):
    try:
        take(name)
    except Exception:
        logging.exception("the step failed; going on with a smaller batch")
    for step in range(40):
        print(f"step {step}: loss {1 / (step + 1):.4f}", flush=True)


def half(name, fraction=1):
    if name == "torch":
        import torch
        torch.cuda.set_per_process_memory_fraction(float(fraction))
    size, held = total() // 2, []
    for block in globals()[name + "_blocks"]():
        held.append(block)
        if len(held) * 2 * GIB >= size:
            return


def total():
    """The memory of the first GPU in bytes, without a context of CUDA."""
    import subprocess
    text = subprocess.run(["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, check=True).stdout
    return int(text.split()[0]) << 20


def rank():
    import torch
    held = torch.empty(GIB, dtype=torch.uint8, device="cuda").fill_(7)
    if os.environ["SLURM_PROCID"] == "2":
        time.sleep(5)  # for the others to have theirs
        take("torch")
    time.sleep(WAIT)
    del held


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        rank()
    elif sys.argv[2:] == ["held"]:
        block = next(globals()[sys.argv[1] + "_blocks"]())
        time.sleep(WAIT)
        del block
    elif sys.argv[2:3] == ["half"]:
        half(sys.argv[1], *sys.argv[3:])
    elif sys.argv[2:] == ["caught"]:
        caught(sys.argv[1])
    else:
        take(sys.argv[1], pause=0.1 if sys.argv[2:] == ["slowly"] else 0)
