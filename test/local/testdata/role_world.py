"""A rank of a role: says what its world is, and then ends as the argument says."""

import os
import signal
import sys
import time

from mpi4py import MPI

world = MPI.COMM_WORLD
name = os.environ["BRINGUPD_ROLE"] + "." + os.environ["BRINGUPD_ROLE_INDEX"]
names = world.allgather(name)
if world.rank == 0:
    print(name, "has", world.size, "ranks of", *sorted(set(names)), "with the sum", world.allreduce(world.rank), flush=True)
else:
    world.allreduce(world.rank)
if sys.argv[1:] == ["kill"] and world.rank == world.size - 1:
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1:] == ["abort"] and world.rank == world.size - 1:
    world.Abort(42)
if sys.argv[1:]:
    time.sleep(600)
