"""A world of Lightning: computes the sum of the ranks' numbers on every rank.

srun --ntasks-per-node=1 bringupd --ranks-per-node=gpu --bind=cpu,memory,network -- python examples/lightning_allreduce.py
"""

import os

import torch
from lightning_fabric import Fabric

# If the numbers agree with those of bringupd, Lightning does not start any processes itself.
fabric = Fabric(devices=int(os.environ["LOCAL_WORLD_SIZE"]), num_nodes=int(os.environ["GROUP_WORLD_SIZE"]), strategy="ddp")
fabric.launch()

total = fabric.all_reduce(torch.tensor(fabric.global_rank, device=fabric.device), reduce_op="sum")
print(f"rank {fabric.global_rank} of {fabric.world_size}: the sum of all is {total.item()}", flush=True)
torch.distributed.destroy_process_group()  # otherwise its threads may abort a rank that exits
