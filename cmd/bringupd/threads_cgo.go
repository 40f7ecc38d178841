//go:build cgo

package main

/*
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

// The Go runtime starts about six threads before main, and aborts with a dump if it cannot.
enum { runtime_threads = 8, wrong_launch = 65 };

static void *await_release(void *release) {
	pthread_mutex_lock(release);
	pthread_mutex_unlock(release);
	return NULL;
}

// check_threads ends the process before the runtime starts if so many threads cannot be started.
__attribute__((constructor)) static void check_threads(void) {
	pthread_mutex_t release = PTHREAD_MUTEX_INITIALIZER;
	pthread_t threads[runtime_threads];
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
	int started = 0, failed = 0;
	pthread_mutex_lock(&release);
	while (started < runtime_threads && !failed) {
		failed = pthread_create(&threads[started], NULL, await_release, &release);
		started += !failed;
	}
	pthread_mutex_unlock(&release);
	while (started > 0)
		pthread_join(threads[--started], NULL);
	if (failed != EAGAIN)
		return;
	getrlimit(RLIMIT_NPROC, &limit);
	if (limit.rlim_cur == RLIM_INFINITY)
		dprintf(STDERR_FILENO, "bringupd: cannot start: no thread can be started here (%s); "
			"see pids.max of the job's control group\n", strerror(failed));
	else
		dprintf(STDERR_FILENO, "bringupd: cannot start: the limit of %llu processes and threads "
			"(RLIMIT_NPROC) is reached; raise ulimit -u where the job is submitted, or end some\n",
			(unsigned long long)limit.rlim_cur);
	_exit(wrong_launch);
}
*/
import "C"
