/* What the daemon and its child say to each other: see pkg/pmi/pmix/frame.go, which has the same numbers. */
#pragma once
#include <stdbool.h>

/* The exit codes of a child that could not go on. */
enum { CHILD_UNFIT = 3, CHILD_ORPHAN = 4 };

/* What clients ask, and, as UP_DONE, what came of an order. */
enum {
	UP_CONNECTED = 1, UP_FINALIZED, UP_ABORT, UP_FENCE, UP_MODEX, UP_PUBLISH, UP_LOOKUP, UP_UNPUBLISH, UP_SPAWN, UP_CONNECT, UP_DISCONNECT,
	UP_NOTIFY, UP_QUERY, UP_LOG, UP_DONE, UP_GROUP,
};

/* What the daemon orders, and, as DO_ANSWER, what came of what clients ask. */
enum { DO_INIT = 1, DO_ADD_JOB, DO_REMOVE_JOB, DO_ADD_CLIENT, DO_ENVIRONMENT, DO_MODEX, DO_EVENT, DO_ANSWER, DO_PACK };

/* Beside PMIx's own types of values: lists of which the library makes the maps of a job, and an array of processes. */
enum { CHILD_NODE_MAP = 0xfff0, CHILD_RANK_MAP = 0xfff1, CHILD_PROCS = 0xfff2 };

/* From then on connections of other users are refused. It returns why that cannot be, or NULL. */
const char *guard_port(void);
bool is_own_connection(int connection);

int serve_pmix(const char *path, int in, int out);
