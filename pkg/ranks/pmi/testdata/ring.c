/* The ranks of tests with a real MPI: ring ACTION, with the actions of mpi.py. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

static void ring(void) {
    enum { MUCH = 2000000 };
    char *out = calloc(1, MUCH), *in = calloc(1, MUCH);
    memcpy(out, &rank, sizeof rank);
    MPI_Sendrecv(out, MUCH, MPI_CHAR, (rank + 1) % size, 0, in, MUCH, MPI_CHAR, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int from, sum, here, found, *universe;
    memcpy(&from, in, sizeof from);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm node;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &here);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &universe, &found);
    if (from == (rank + size - 1) % size)
        printf("sum %d, %d here, universe %d\n", sum, here, found ? *universe : -1);
}

/* Debian's MPICH cannot open ports, not even under its own mpiexec: any text will do. */
static void publish(void) {
    char words[MPI_MAX_PORT_NAME] = "tag#0$nowhere";
    if (rank == 0)
        MPI_Publish_name("service", MPI_INFO_NULL, words);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        if (MPI_Lookup_name("nothing", MPI_INFO_NULL, words) == MPI_SUCCESS)
            return;
        *words = 0;
        MPI_Lookup_name("service", MPI_INFO_NULL, words);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Unpublish_name("service", MPI_INFO_NULL, words);
    if ((rank == 0 || rank == size - 1) && !strcmp(words, "tag#0$nowhere"))
        printf("met by name\n");
}

static void end(const char *how) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1) {
        if (!strcmp(how, "abort")) MPI_Abort(MPI_COMM_WORLD, 42);
        if (!strcmp(how, "exit")) _exit(7);
        if (!strcmp(how, "zero")) _exit(0);
        if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    sleep(600);
}

int main(int argc, char **argv) {
    const char *does = argc > 1 ? argv[1] : "ring";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(does, "ring")) ring();
    else if (!strcmp(does, "publish")) publish();
    else end(does);
    MPI_Finalize();
    return 0;
}
