/* The protocol between the daemon and its child. pkg/ranks/pmi/pmix/frame.go defines the same numbers. */
#pragma once
#include <stdbool.h>

/* Exit codes of a child that cannot start or continue. */
enum { CHILD_UNFIT = 3, CHILD_ORPHAN = 4 };

/* Requests of clients; UP_DONE is the result of an order of the daemon. */
enum {
	UP_CONNECTED = 1, UP_FINALIZED, UP_ABORT, UP_FENCE, UP_MODEX, UP_PUBLISH, UP_LOOKUP, UP_UNPUBLISH, UP_SPAWN, UP_CONNECT, UP_DISCONNECT,
	UP_NOTIFY, UP_QUERY, UP_LOG, UP_DONE, UP_GROUP,
};

/* Orders of the daemon; DO_ANSWER is the answer to a client's request. */
enum { DO_INIT = 1, DO_ADD_JOB, DO_REMOVE_JOB, DO_ADD_CLIENT, DO_ENVIRONMENT, DO_MODEX, DO_EVENT, DO_ANSWER, DO_PACK };

/* Types of values in addition to PMIx's own: lists from which the library generates the maps of
 * a job, and arrays of processes. */
enum { CHILD_NODE_MAP = 0xfff0, CHILD_RANK_MAP = 0xfff1, CHILD_PROCS = 0xfff2 };

/* guard_port makes this process refuse connections of other users. It returns NULL, or the
 * reason if that is not possible. */
const char *guard_port(void);
bool is_own_connection(int connection);

int serve_pmix(const char *path, int in, int out);
