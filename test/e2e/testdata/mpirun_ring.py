"""A ring of messages. With a number as its argument it exits with that code; with "hold" it keeps running."""
import socket
import sys
import time

from mpi4py import MPI

world = MPI.COMM_WORLD
got = world.sendrecv(world.rank, (world.rank + 1) % world.size, source=(world.rank - 1) % world.size)
hosts = world.gather((got, socket.gethostname()))
if world.rank == 0:
    told = [host for number, (got, host) in enumerate(hosts) if got == (number - 1) % world.size]
    print("ring of %d on %s" % (len(told), ",".join(sorted(set(told)))), flush=True)
if sys.argv[1:] == ["hold"]:
    time.sleep(1000)
MPI.Finalize()
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
