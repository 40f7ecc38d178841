/* The program of MPI ranks in the tests: mpi_trial MODE. Rank 0 prints the results; the last rank
 * fails if MODE demands it. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

/* Passes a token around all ranks, and computes the sum of their numbers. */
static void meet(void) {
	int token = -1, sum = 0;
	MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 7, &token, 1, MPI_INT, (rank + size - 1) % size, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (token != (rank + size - 1) % size)
		MPI_Abort(MPI_COMM_WORLD, 99);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Comm node;
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
	int local, *universe, known;
	MPI_Comm_size(node, &local);
	MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &universe, &known);
	if (rank == 0)
		printf("%d ranks, %d a node: the sum is %d, the universe %d\n", size, local, sum, known ? *universe : -1);
}

/* Checks that ranks of a communicator share memory if, and only if, they are on one node. */
static void check_shared(MPI_Comm comm, const char *what) {
	int all, me, together = 0, shared, n;
	MPI_Comm node;
	MPI_Comm_size(comm, &all);
	MPI_Comm_rank(comm, &me);
	char name[MPI_MAX_PROCESSOR_NAME] = "", *names = calloc(all, sizeof name);
	MPI_Get_processor_name(name, &n);
	MPI_Allgather(name, sizeof name, MPI_CHAR, names, sizeof name, MPI_CHAR, comm);
	for (int i = 0; i < all; i++)
		together += strcmp(name, names + i * sizeof name) == 0;
	MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
	MPI_Comm_size(node, &shared);
	if (shared != together) {
		fprintf(stderr, "%s: node %d of %d on %s shares memory with %d ranks, and %d are there\n", what, me, all, name, shared, together);
		MPI_Abort(MPI_COMM_WORLD, 98);
	}
	MPI_Comm_free(&node);
	free(names);
}

/* Merges spawned ranks with their parents. MPICH 5 takes the first nodes of both for one, also
 * with its own mpiexec. */
static void meet_spawned(MPI_Comm other, int high) {
	MPI_Comm all;
	MPI_Intercomm_merge(other, high, &all);
	MPI_Barrier(all);
#ifdef OPEN_MPI
	check_shared(all, "together");
#endif
	MPI_Comm_free(&all);
}

/* Spawns 1 to 3 ranks on each list of hosts. */
static void place(char *program, int lists, char **hosts) {
	char *arguments[] = {"child", "placed", NULL};
	for (int list = 0; list < lists; list++)
		for (int ranks = 1; ranks <= 3; ranks++) {
			MPI_Comm children;
			MPI_Info where;
			MPI_Info_create(&where);
			if (strcmp(hosts[list], "any") != 0)
				MPI_Info_set(where, "host", hosts[list]);
			MPI_Comm_spawn(program, arguments, ranks, where, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
			meet_spawned(children, 0);
			MPI_Comm_disconnect(&children);
			MPI_Info_free(&where);
		}
	if (rank == 0)
		printf("%d placements\n", 3 * lists);
}

/* Prints the hosts of the ranks to which a communicator connects, in order. */
static void tell_children(const char *what, MPI_Comm children) {
	int n;
	MPI_Comm_remote_size(children, &n);
	char (*hosts)[64] = calloc(n, 64);
	MPI_Gather(NULL, 0, MPI_CHAR, hosts, 64, MPI_CHAR, rank == 0 ? MPI_ROOT : MPI_PROC_NULL, children);
	if (rank == 0) {
		printf("%s:", what);
		for (int i = 0; i < n; i++)
			printf(" %s", hosts[i]);
		printf("\n");
		fflush(stdout);
	}
	MPI_Barrier(children);
	MPI_Comm_disconnect(&children);
}

static void child(MPI_Comm parent, const char *word) {
	char host[64] = "", name[MPI_MAX_PROCESSOR_NAME];
	int n;
	if (strcmp(word, "placed") == 0) {
		check_shared(MPI_COMM_WORLD, "spawned");
		meet_spawned(parent, 1);
		MPI_Comm_disconnect(&parent);
		return;
	}
	MPI_Get_processor_name(name, &n);
	snprintf(host, sizeof host, "%.40s%.10s", name, word);
	MPI_Gather(host, 64, MPI_CHAR, NULL, 0, MPI_CHAR, 0, parent);
	MPI_Barrier(parent); /* MPICH lets a child end before all its parents have reached it */
	MPI_Comm_disconnect(&parent);
}

static void spawn(char *program) {
	MPI_Comm children;
	char *plain[] = {"child", "", NULL}, *a[] = {"child", "/a", NULL}, *b[] = {"child", "/b", NULL};
	MPI_Comm_spawn(program, plain, 3, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
	tell_children("three", children);
	MPI_Info there;
	MPI_Info_create(&there);
	MPI_Info_set(there, "host", "n1");
	MPI_Comm_spawn(program, plain, 2, there, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
	tell_children("on n1", children);
	char *programs[] = {program, program}, **arguments[] = {a, b};
	int counts[] = {1, 2};
	MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
	MPI_Comm_spawn_multiple(2, programs, arguments, counts, infos, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
	tell_children("two commands", children);
	for (int i = 0; i < 5; i++) {
		MPI_Comm_spawn(program, plain, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
		tell_children("again", children);
	}
}

/* The first rank accepts a connection of the last one, through a published name. */
static void accept_last(void) {
	char port[MPI_MAX_PORT_NAME];
	MPI_Comm other;
	int got = -1;
	if (rank == 0) {
		MPI_Open_port(MPI_INFO_NULL, port);
		MPI_Publish_name("trial", MPI_INFO_NULL, port);
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other);
		MPI_Recv(&got, 1, MPI_INT, 0, 1, other, MPI_STATUS_IGNORE);
		printf("accepted rank %d\n", got);
		MPI_Unpublish_name("trial", MPI_INFO_NULL, port);
		MPI_Comm_disconnect(&other);
	} else {
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == size - 1) {
			MPI_Lookup_name("trial", MPI_INFO_NULL, port);
			MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other);
			MPI_Send(&rank, 1, MPI_INT, 0, 1, other);
			MPI_Comm_disconnect(&other);
		}
	}
}

int main(int argc, char **argv) {
	MPI_Comm parent;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_get_parent(&parent);
	const char *mode = argc > 1 ? argv[1] : "meet";
	if (parent != MPI_COMM_NULL)
		child(parent, argc > 2 ? argv[2] : "");
	else if (strcmp(mode, "spawn") == 0)
		spawn(argv[0]);
	else if (strcmp(mode, "place") == 0)
		place(argv[0], argc - 2, argv + 2);
	else
		meet();
	if (strcmp(mode, "spawn") == 0 && parent == MPI_COMM_NULL)
		accept_last();
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == size - 1 && parent == MPI_COMM_NULL) {
		if (strcmp(mode, "abort") == 0)
			MPI_Abort(MPI_COMM_WORLD, 42);
		if (strcmp(mode, "exit") == 0)
			_exit(7);
		if (strcmp(mode, "leave") == 0)
			_exit(0);
		if (strcmp(mode, "kill") == 0)
			raise(SIGKILL);
	}
	MPI_Finalize();
	return 0;
}
