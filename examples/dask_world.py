"""Dask in a world of ranks: rank 0 runs the scheduler and your program, and each other rank is a worker.

srun --ntasks-per-node=1 bringupd --ranks-per-node=4 -- python examples/dask_world.py
"""

import os
import socket
import sys

from distributed import LocalCluster

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]

if rank > 0:
    os.execv(sys.executable, [sys.executable, "-m", "dask", "worker", f"tcp://{address}:{port}",
                              "--name", str(rank), "--nthreads", "1", "--no-nanny", "--no-dashboard"])

with LocalCluster(n_workers=0, host=address, scheduler_port=int(port), dashboard_address=None) as scheduler:
    with scheduler.get_client() as client:
        client.wait_for_workers(ranks - 1, timeout=120)
        hosts = client.run(socket.gethostname).values()
        print(f"{len(hosts)} workers on", ", ".join(sorted(set(hosts))))
        print("the sum of the squares is", sum(client.gather(client.map(lambda n: n * n, range(100)))))
        client.retire_workers()  # makes them exit with 0
