"""Runs code in the sandboxes of ray_and_sandbox.yaml, by a task on each node of the Ray cluster."""

import os
import socket
import urllib.request

import ray

SANDBOXES = os.environ["BRINGUPD_ROLE_SANDBOX_ENDPOINTS"].split(",")  # planned, ready or not
KEY = os.environ["BRINGUPD_ROLE_SANDBOX_KEY"]


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def run_in_sandboxes(code):
    """Returns the name of the node, and the output of the code in each sandbox."""
    results = []
    for endpoint in SANDBOXES:
        request = urllib.request.Request(
            f"http://{endpoint}/run", data=code.encode(), headers={"Authorization": "Bearer " + KEY}
        )
        with urllib.request.urlopen(request) as answer:
            results.append(answer.read().decode().strip())
    return socket.gethostname(), results


ray.init()
nodes = [node for node in ray.nodes() if node["Alive"]]
tasks = [run_in_sandboxes.remote(f"print({number} ** 2)") for number in range(len(nodes))]
for number, (host, results) in enumerate(ray.get(tasks)):
    print(f"task {number} of {len(nodes)}: {results}", flush=True)
