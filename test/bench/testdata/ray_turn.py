"""A Ray driver that writes to the given file when the GCS registered the last node, and when a task had run on each."""

import datetime
import os
import re
import sys
import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ray.init(address="auto")


@ray.remote(num_cpus=1)
def run():
    pass


nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
ray.get([run.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote() for node in nodes])
done = time.time()

# Read the log, because the table of nodes has the start time of a raylet, which is seconds before it is ALIVE.
with open(os.path.join(ray._private.worker._global_node.get_logs_dir_path(), "gcs_server.out")) as log:
    alive = re.findall(r"\[(\S+ \S+),(\d+) .*Registering new node", log.read())
last = max(datetime.datetime.fromisoformat(at + "." + ms).timestamp() for at, ms in alive)
with open(sys.argv[1], "a") as told:
    told.write(f"nodes {len(nodes)}\nalive {last}\ntasks {done}\n")
