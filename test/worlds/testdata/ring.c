/* One rank of an MPI ring. It repeatedly forwards a message until a signal and a file order it to
 * end, like the ranks of ring_test.go. It uses MPI_Test instead of MPI_Recv, so that it notices
 * the order and does not occupy a processor. */
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *dir;
static char order[4096]; /* path of the file with the order */
static volatile sig_atomic_t ordered, connected;

static void tell(const char *what, int rank) {
	char temp[4096], path[4096];
	snprintf(temp, sizeof temp, "%s/.%s.%d", dir, what, rank);
	snprintf(path, sizeof path, "%s/%s.%d", dir, what, rank);
	FILE *file = fopen(temp, "w");
	if (file == NULL || fprintf(file, "%d", getpid()) < 0 || fclose(file) != 0 || rename(temp, path) != 0) {
		perror(path);
		exit(99);
	}
}

/* Executes the order. A signal handler calls it, perhaps within malloc, so it calls only async-
 * signal-safe functions. */
static void obey(void) {
	static const char words[] = "the loss is not a number\n";
	char what[32] = "";
	int code = 0, file = open(order, O_RDONLY);
	if (file < 0 || read(file, what, sizeof what - 1) < 1 || write(2, words, sizeof words - 1) < 1)
		_exit(98);
	const char *space = strchr(what, ' ');
	for (const char *digit = space ? space + 1 : ""; *digit >= '0' && *digit <= '9'; digit++)
		code = 10 * code + *digit - '0';
	if (!strncmp(what, "exit", 4) && connected)
		exit(code);
	if (!strncmp(what, "exit", 4))
		_exit(code);
	if (!strncmp(what, "crash", 5)) {
		signal(SIGSEGV, SIG_DFL); /* Intel's library would turn it into an exit */
		raise(SIGSEGV);
	}
	if (!strncmp(what, "abort", 5)) /* only when connected, so not in the signal handler */
		MPI_Abort(MPI_COMM_WORLD, code);
	_exit(97);
}

/* During MPI_Init, nothing would check for the order later, so the handler executes it. */
static void on_order(int signal) {
	ordered = 1;
	if (!connected)
		obey();
}

static void pass_on(int next, int before) {
	char out = 1, in;
	MPI_Request both[2];
	MPI_Irecv(&in, 1, MPI_CHAR, before, 0, MPI_COMM_WORLD, &both[0]);
	MPI_Isend(&out, 1, MPI_CHAR, next, 0, MPI_COMM_WORLD, &both[1]);
	for (int done = 0; !done; usleep(1000)) {
		if (ordered && connected)
			obey();
		MPI_Testall(2, both, &done, MPI_STATUSES_IGNORE);
	}
}

int main(int argc, char **argv) {
	int rank = atoi(getenv("BRINGUPD_RANK")), size = atoi(getenv("BRINGUPD_RANKS"));
	dir = getenv("BRINGUPD_TEST_RING");
	snprintf(order, sizeof order, "%s/order", dir);
	signal(SIGUSR1, on_order);
	tell("begun", rank);
	MPI_Init(&argc, &argv);
	pass_on((rank + 1) % size, (rank + size - 1) % size);
	connected = 1;
	tell("up", rank);
	for (;;)
		pass_on((rank + 1) % size, (rank + size - 1) % size);
}
