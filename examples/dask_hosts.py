"""A Dask driver: runs a function on every worker, prints the workers' names and hosts, and computes a sum."""

import socket

from dask.distributed import Client

with Client() as client:  # uses variables that bringupd sets
    hosts = client.run(socket.gethostname)
    workers = client.scheduler_info(n_workers=-1)["workers"]
    print("\n".join(sorted(f"{workers[at]['name']} on {host}" for at, host in hosts.items())))
    print("the sum of the squares is", sum(client.gather(client.map(lambda n: n * n, range(100)))))
