/* Like mpirun_ring.py, for an MPI without a Python. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct told { int got; char host[64]; };

static int by_host(const void *a, const void *b) { return strcmp(((const struct told *)a)->host, ((const struct told *)b)->host); }

int main(int argc, char **argv)
{
    int rank, size, right = 0;
    struct told own = {0}, all[64];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &own.got, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    gethostname(own.host, sizeof own.host - 1);
    MPI_Gather(&own, sizeof own, MPI_BYTE, all, sizeof own, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        for (int i = 0; i < size; i++)
            right += all[i].got == (i + size - 1) % size;
        printf("ring of %d on ", right);
        qsort(all, size, sizeof own, by_host);
        for (int i = 0; i < size; i++)
            if (i == 0 || strcmp(all[i].host, all[i - 1].host) != 0)
                printf("%s%s", i ? "," : "", all[i].host);
        puts("");
        fflush(stdout);
    }
    if (argc > 1 && strcmp(argv[1], "hold") == 0)
        sleep(1000);
    MPI_Finalize();
    return argc > 1 ? atoi(argv[1]) : 0;
}
