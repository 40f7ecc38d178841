"""A Ray driver: runs one task on every node and prints the hosts' names."""

import os
import socket
import sys

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ray.init()  # finds the cluster through RAY_ADDRESS, which bringupd sets


@ray.remote(num_cpus=1)
def host():
    return socket.gethostname()


nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
there = [
    host.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
    for node in nodes
]
print("\n".join(sorted(ray.get(there))))
sys.exit(int(os.environ.get("EXIT_WITH", "0")))
