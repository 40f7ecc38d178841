"""Finds its cluster and sorts its nodes like NeMo RL (nemo_rl/distributed/virtual_cluster.py), and prints the result."""

import json
import os
import time

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

now = time.time()
told = dict(os.environ)

# Variables of a daemon's own task and step, and of the nodes of its job.
MISLEADING = ("PMI", "SLURM_JOBID", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_STEP", "SLURM_TASK")

# Variables of launchers would mislead the MPI of an actor; all others are passed on to every actor.
for name in list(os.environ):
    if name.startswith(("PMIX_", "PMI_", "MPI_", "OMPI_", "SLURM_")):
        del os.environ[name]
ray.init(address="auto", log_to_driver=True, include_dashboard=False, runtime_env={"env_vars": dict(os.environ)}, logging_level="ERROR")


@ray.remote(num_cpus=0.01, num_gpus=0.01)
def look():
    here = ray.get_runtime_context().get_node_id()
    resources = next(node["Resources"] for node in ray.nodes() if node["NodeID"] == here)
    return {
        "host": os.uname().nodename,
        "topo_rank": resources.get("topo_rank", -1),
        "launcher": [name for name in os.environ if name.startswith(MISLEADING)],
        "setup": os.environ.get("OF_SETUP") and open(os.environ["OF_SETUP"]).read().strip(),
    }


resources = ray.cluster_resources()
nodes = int(sum(node["Alive"] and "worker_units" in node["Resources"] for node in ray.nodes()))
group = placement_group([{"CPU": 1, "GPU": 2}] * nodes, strategy="STRICT_SPREAD")
ray.get(group.ready())
found = [
    look.options(scheduling_strategy=PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=i)).remote()
    for i in range(nodes)
]
print(
    json.dumps(
        {
            "resources": {name: resources.get(name, 0) for name in ("slurm_managed_ray_cluster", "worker_units", "GPU", "ray_head")},
            "ports": sorted(node["NodeManagerPort"] for node in ray.nodes()),
            "nodes": sorted(ray.get(found), key=lambda node: node["topo_rank"]),
            "epochs in order": float(told["NRL_JOB_START_EPOCH"]) < float(told["NRL_RAY_READY_EPOCH"]) < now if "NRL_RAY_READY_EPOCH" in told else None,
            "env": {name: told.get(name) for name in ("SLURM_JOB_ID", "SLURM_PROCID", "OMP_NUM_THREADS", "RAY_ENABLE_UV_RUN_RUNTIME_ENV", "UV_CACHE_DIR")},
        }
    )
)
