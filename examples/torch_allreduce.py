"""A world of torch.distributed: computes the sum of the ranks' numbers on every rank.

srun --ntasks-per-node=1 bringupd --ranks-per-node=gpu -- python examples/torch_allreduce.py
"""

import torch
import torch.distributed as dist

gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if gpu else "gloo")  # uses variables that bringupd sets

total = torch.tensor([dist.get_rank()], device="cuda" if gpu else "cpu")
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: the sum of all is {total.item()}", flush=True)
dist.destroy_process_group()
