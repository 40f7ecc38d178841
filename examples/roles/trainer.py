"""A world of torch ranks that train on the answers of the servers of a role.

    python trainer.py ROLE

Each rank sends its own requests, and sends one again to another server if a server dies. The world
ends after STEPS steps (10), or at the step at which the file STOP_FILE exists.
"""

import concurrent.futures
import os
import sys

import torch
import torch.distributed as dist
from openai_client import Servers

REQUESTS = 32  # of each rank in each step
STEPS = int(os.environ.get("STEPS", "10"))
STOP_FILE = os.environ.get("STOP_FILE", "")
MODEL = os.environ.get("MODEL", "")


def main():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, servers = dist.get_rank(), Servers(sys.argv[1])

    def judge(prompt):
        """Returns the number of tokens of the answer, which stands for a reward."""
        answer = servers.ask(
            lambda client: client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": prompt}], max_tokens=16
            )
        )
        assert answer.choices[0].finish_reason in ("stop", "length"), answer
        return answer.usage.completion_tokens

    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    asked = answered = 0
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for step in range(STEPS):
            prompts = [f"{rank}.{step}.{i}" for i in range(REQUESTS)]
            rewards = list(pool.map(judge, prompts))
            asked, answered = asked + len(prompts), answered + len(rewards)
            # An all-reduce of the gradients, as in data-parallel training.
            optimizer.zero_grad()
            ((weight - torch.tensor(rewards, dtype=torch.float32)) ** 2).mean().backward()
            dist.all_reduce(weight.grad)
            optimizer.step()
            stop = torch.tensor([os.path.exists(STOP_FILE)], dtype=torch.int)
            dist.all_reduce(stop)
            if rank == 0:
                print("step", step, flush=True)
            if stop.item():
                break
    counts = f"{asked} requests, {answered} answers, {servers.repeated} sent again"
    print(f"rank {rank}: {counts}", flush=True)
    dist.destroy_process_group()  # otherwise its threads may abort a rank that exits


if __name__ == "__main__":
    main()
