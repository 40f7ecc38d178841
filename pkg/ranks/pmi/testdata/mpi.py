"""The ranks of tests with a real MPI: mpi.py ACTION."""
import os
import signal
import sys
import time

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
does = sys.argv[1]


def ring():
    token = world.sendrecv(rank, dest=(rank + 1) % size, source=(rank - 1) % size)
    assert token == (rank - 1) % size
    big = world.sendrecv(bytearray(2_000_000), dest=(rank + 1) % size, source=(rank - 1) % size)
    assert len(big) == 2_000_000
    here = world.Split_type(MPI.COMM_TYPE_SHARED).size
    print(f"sum {world.allreduce(rank)}, {here} here, universe {world.Get_attr(MPI.UNIVERSE_SIZE)}", flush=True)


def end(how):
    world.barrier()
    if rank == size - 1:
        how()
    world.barrier()
    time.sleep(600)


def publish():
    if rank == 0:
        port = MPI.Open_port()
        MPI.Publish_name("service", port)
        world.barrier()
        other = MPI.COMM_SELF.Accept(port)
        MPI.Unpublish_name("service", port)
    elif rank == size - 1:
        try:
            MPI.Lookup_name("nothing")
        except MPI.Exception:
            world.barrier()
            other = MPI.COMM_SELF.Connect(MPI.Lookup_name("service"))
    else:
        world.barrier()
        return
    assert other.sendrecv(rank, 0, source=0) == size - 1 - rank
    other.Disconnect()
    print("met by name", flush=True)


def start(commands, ranks):
    here = os.path.abspath(__file__)
    if commands == 1:
        children = world.Spawn(sys.executable, args=[here, "child"], maxprocs=ranks[0])
    else:
        children = world.Spawn_multiple([sys.executable] * commands, args=[[here, "child", "a b", ""]] * commands, maxprocs=ranks)
    told = children.gather(None, root=MPI.ROOT if rank == 0 else MPI.PROC_NULL)
    children.barrier()
    children.Disconnect()
    return told or []


def spawn():
    told = start(1, [3])
    print("children", *(number for number, _ in told), "of", len(told), flush=True)


def spawns():
    first = " ".join(f"{number}/{app}" for number, app in start(2, [1, 2]))
    then = " ".join(str(number) for _ in range(5) for number, _ in start(1, [1]))
    try:
        world.Spawn("/no/such", maxprocs=1)
        last = "started"
    except MPI.Exception:
        last = "refused"
    if rank == 0:
        print(f"children {first}, then {then}, then {last}", flush=True)


def child():
    parent = MPI.Comm.Get_parent()
    parent.gather((rank, world.Get_attr(MPI.APPNUM)), root=0)
    parent.barrier()  # or MPICH 5 fails where a parent that was slow in Spawn finds the child's memory gone, under its own mpiexec too
    parent.Disconnect()


{
    "ring": ring, "publish": publish, "spawn": spawn, "spawns": spawns, "child": child,
    "abort": lambda: end(lambda: world.Abort(42)),
    "exit": lambda: end(lambda: os._exit(7)),
    "zero": lambda: end(lambda: os._exit(0)),
    "kill": lambda: end(lambda: os.kill(os.getpid(), signal.SIGKILL)),
}[does]()
