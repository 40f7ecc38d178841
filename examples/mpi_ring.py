"""Passes a token once around all ranks of a world, with mpi4py and the MPI for which it is installed.

    srun --ntasks-per-node=1 --kill-on-bad-exit=1 --wait=0 bringupd --ranks-per-node=4 -- python mpi_ring.py
"""

from mpi4py import MPI

world = MPI.COMM_WORLD
came_from = world.sendrecv(world.rank, dest=(world.rank + 1) % world.size, source=(world.rank - 1) % world.size)
total = world.allreduce(world.rank)
print(f"rank {world.rank} of {world.size} on {MPI.Get_processor_name()}: the token came from rank {came_from}, and the sum of all is {total}", flush=True)
