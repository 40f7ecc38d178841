"""A pool of mpi4py workers on all nodes of the job. Run it in a world of one rank, which spawns the workers.

    srun --ntasks-per-node=1 --kill-on-bad-exit=1 --wait=0 bringupd --ranks=1 -- python mpi_pool.py

The pool has one worker for each other slot. The number of slots is the number of cores or GPUs of the nodes, or
is set by --slots-per-node.
"""

import time

from mpi4py import MPI
from mpi4py.futures import MPIPoolExecutor


def square(number):
    time.sleep(0.01)  # some work
    return MPI.COMM_WORLD.rank, MPI.Get_processor_name(), number * number


if __name__ == "__main__":
    with MPIPoolExecutor() as pool:
        results = list(pool.map(square, range(100)))
    for rank, host in sorted({(rank, host) for rank, host, _ in results}):
        print("a worker ran on", host)
    print("the sum of all squares is", sum(result for _, _, result in results))
