"""A well-behaved PyTorch job: multiplies matrices, says where, and ends."""
import os

import torch

a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
b = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
for _ in range(20):
    a = (a @ b) / 90.6  # the square root of 8192 keeps the values in range
torch.cuda.synchronize()
assert torch.isfinite(a).all().item()
uuid = getattr(torch.cuda.get_device_properties(0), "uuid", "")
print(f"ready pid={os.getpid()} gpu=GPU-{uuid} bytes={torch.cuda.memory_allocated()} torch={torch.__version__}", flush=True)
