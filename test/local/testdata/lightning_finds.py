"""Prints what each of Lightning's environments that applies here detects for this rank, and runs the given program."""

import os
import runpy
import sys

from lightning_fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment

for kind in TorchElasticEnvironment, SLURMEnvironment:
    if kind.detect():
        e = kind()
        told = f"{e.main_address}:{e.main_port}" == os.environ["JAX_COORDINATOR_ADDRESS"]
        print(f"{kind.__name__}: rank {e.global_rank()} of {e.world_size()}, {e.local_rank()} on node {e.node_rank()}, meets where it is told: {told}", flush=True)

runpy.run_path(sys.argv[1])
