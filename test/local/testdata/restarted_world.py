"""A rank of a world that fails in its first two starts."""
import os

from mpi4py import MPI

# the ranks of a role, or those of flags
start = int(os.environ.get("BRINGUPD_GENERATION") or os.environ["BRINGUPD_ATTEMPT"])
world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
if start == 0 and world.rank == world.size - 1:
    os._exit(3)
if start == 1 and world.rank == 0:
    world.Abort(5)
world.barrier()
if world.rank == 0:
    print(f"start {start} has {world.size} ranks with the sum {total}", flush=True)
