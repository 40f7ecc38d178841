/* A rank that calls MPI_Init and MPI_Finalize, and prints how long that took. */
#include <mpi.h>
#include <stdio.h>
#include <time.h>

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
	double began = now();
	MPI_Init(&argc, &argv);
	MPI_Finalize();
	printf("within=%.0f\n", now() - began);
	return 0;
}
