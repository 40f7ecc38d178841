"""A world of torch.distributed: every rank adds its number to those of all others.

srun --ntasks-per-node=1 bringupd --ranks-per-node=gpu -- python examples/torch_allreduce.py
"""

import torch
import torch.distributed as dist

gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if gpu else "gloo")  # finds the others by what bringupd has set

total = torch.tensor([dist.get_rank()], device="cuda" if gpu else "cpu")
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: the sum of all is {total.item()}", flush=True)
dist.destroy_process_group()
