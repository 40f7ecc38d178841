"""Computes the sum of the ranks of a world with Open MPI's own library, and prints which rank bringupd assigns."""

import ctypes
import os

mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)


def handle(name):
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))


rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
world = handle("ompi_mpi_comm_world")
mpi.MPI_Init(None, None)
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
mpi.MPI_Allreduce(ctypes.byref(rank), ctypes.byref(total), 1, handle("ompi_mpi_int"), handle("ompi_mpi_op_sum"), world)
told = os.environ.get("BRINGUPD_RANK"), os.environ.get("BRINGUPD_RANKS")
print(f"rank {rank.value} of {size.value}: the sum of all is {total.value}; told {told[0]} of {told[1]}", flush=True)
mpi.MPI_Finalize()
