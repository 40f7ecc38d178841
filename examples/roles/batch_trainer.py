"""A world of torch ranks that train on the batches of an orchestrator.

    python batch_trainer.py ROLE

Rank 0 gets the batches, and saves the model at the end, when the orchestrator may have ended.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
from openai_client import api_key, variable_part


def fetch_batch(role, step):
    """Returns a batch, or None after the last one. It waits until the orchestrator runs."""
    endpoint = os.environ[f"BRINGUPD_ROLE_{variable_part(role)}_ENDPOINTS"]  # planned, ready or not
    request = urllib.request.Request(
        f"http://{endpoint}/batch/{step}", headers={"Authorization": "Bearer " + api_key(role)}
    )
    while True:
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise
        except urllib.error.URLError:
            time.sleep(0.2)


dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank = dist.get_rank()
weight = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
step = 0
while True:
    batch = [fetch_batch(sys.argv[1], step) if rank == 0 else None]
    dist.broadcast_object_list(batch)
    if batch[0] is None:
        break
    optimizer.zero_grad()
    own = torch.tensor(batch[0][rank :: dist.get_world_size()], dtype=torch.float32)
    ((weight - own) ** 2).mean().backward()
    dist.all_reduce(weight.grad)
    optimizer.step()
    step += 1
if rank == 0:
    torch.save({"weight": weight}, "model.pt")
    print(f"trainer: {step} steps of {dist.get_world_size()} ranks", flush=True)
dist.destroy_process_group()  # otherwise its threads may abort a rank that exits
