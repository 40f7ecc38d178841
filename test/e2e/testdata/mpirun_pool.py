"""A pool whose workers are spawned by the launcher. Prints where they run."""
import socket
import time

from mpi4py.futures import MPIPoolExecutor


def where(_):
    time.sleep(0.2)
    return socket.gethostname()


if __name__ == "__main__":
    with MPIPoolExecutor(5) as pool:
        print("workers on " + ",".join(sorted(set(pool.map(where, range(20))))), flush=True)
