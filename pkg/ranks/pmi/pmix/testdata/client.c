/* A plain client of PMIx: client LIBRARY SCENARIO. It uses no header of PMIx, so that it works with
 * any version of the library. It prints the errors that it finds. */
#include "../child/abi.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SCOPE_GLOBAL = 3, NOT_FOUND = -46, TIMED_OUT = -24, ABORTED = -7, JOB_ENDED = -145, OURS = -3001, SESSION = 4 };
static const uint32_t ALL = UINT32_MAX - 1;

typedef void (*handler_done)(pmix_status, size_t, void *);
typedef void (*event_done)(pmix_status, pmix_info *, size_t, op_done, void *, void *);
typedef void (*handler)(size_t, pmix_status, const pmix_proc *, pmix_info *, size_t, pmix_info *, size_t, event_done, void *);

#ifdef CLAIMED
/* A client that claims to be another user: libpmix sends these results to its server. */
uid_t getuid(void) { return CLAIMED; }
uid_t geteuid(void) { return CLAIMED; }
gid_t getgid(void) { return CLAIMED; }
gid_t getegid(void) { return CLAIMED; }
#endif

static void *library;
static pmix_proc self, job;
static uint32_t size;

static void *symbol(const char *name) {
	void *found = dlsym(library, name);
	if (found == NULL)
		printf("no %s\n", name), exit(2);
	return found;
}

/* CALL calls a function of the library: its name, the types of its parameters, and those. */
#define CALL(name, types, args) (((pmix_status (*) types)symbol(name)) args)

static void want(pmix_status got, pmix_status wanted, const char *what) {
	if (got != wanted)
		printf("rank %u: %s: %d, not %d\n", self.rank, what, got, wanted), exit(1);
}

static pmix_info text_info(const char *key, const char *text) {
	pmix_info i = {.value = {.type = T_STRING}};
	snprintf(i.key, sizeof i.key, "%s", key);
	i.value.data.string = (char *)text;
	return i;
}

static pmix_info int_info(const char *key, int value) {
	pmix_info i = {.value = {.type = T_INT}};
	snprintf(i.key, sizeof i.key, "%s", key);
	i.value.data.integer = value;
	return i;
}

static pmix_info flag_info(const char *key) {
	pmix_info i = {.value = {.type = T_BOOL}};
	snprintf(i.key, sizeof i.key, "%s", key);
	i.value.data.flag = true;
	return i;
}

static pmix_proc proc_of(const char *nspace, uint32_t rank) {
	pmix_proc p = {.rank = rank};
	snprintf(p.nspace, sizeof p.nspace, "%s", nspace);
	return p;
}

static pmix_status get(pmix_proc p, const char *key, pmix_value **found) {
	return CALL("PMIx_Get", (const pmix_proc *, const char *, const pmix_info *, size_t, pmix_value **), (&p, key, NULL, 0, found));
}

static uint32_t get_number(pmix_proc p, const char *key) {
	pmix_value *found = NULL;
	want(get(p, key, &found), SUCCESS, key);
	return found->type == T_UINT16 ? found->data.uint16 : found->data.uint32;
}

static pmix_status fence_with(const pmix_info *infos, size_t n) {
	return CALL("PMIx_Fence", (const pmix_proc *, size_t, const pmix_info *, size_t), (&job, 1, infos, n));
}

static void fence(void) { want(fence_with(NULL, 0), SUCCESS, "fence"); }

static void put(const char *key, const char *text) {
	pmix_value v = {.type = T_STRING};
	v.data.string = (char *)text;
	want(CALL("PMIx_Put", (uint8_t, const char *, pmix_value *), (SCOPE_GLOBAL, key, &v)), SUCCESS, "put");
}

static void commit(void) { want(CALL("PMIx_Commit", (void), ()), SUCCESS, "commit"); }

static void put_own(void) {
	char text[300];
	snprintf(text, sizeof text, "of %s %u", self.nspace, self.rank);
	put("test-key", text);
	commit();
}

static void get_all(const char *nspace, uint32_t n) {
	for (uint32_t rank = 0; rank < n; rank++) {
		char wanted[300];
		pmix_value *found = NULL;
		snprintf(wanted, sizeof wanted, "of %s %u", nspace, rank);
		want(get(proc_of(nspace, rank), "test-key", &found), SUCCESS, "get");
		if (found->type != T_STRING || strcmp(found->data.string, wanted))
			printf("rank %u: got %s, not %s\n", self.rank, found->data.string, wanted), exit(1);
	}
}

static void init(void) {
	want(CALL("PMIx_Init", (pmix_proc *, pmix_info *, size_t), (&self, NULL, 0)), SUCCESS, "init");
	job = proc_of(self.nspace, ALL);
	size = get_number(job, "pmix.job.size");
}

static void finalize(void) { want(CALL("PMIx_Finalize", (const pmix_info *, size_t), (NULL, 0)), SUCCESS, "finalize"); }

/* ---- scenarios */

static void exchange(void) {
	put_own();
	pmix_info collect = flag_info("pmix.collect");
	want(fence_with(&collect, 1), SUCCESS, "fence with data");
	get_all(self.nspace, size);
	fence();
}

static void modex(void) {
	put_own();
	fence();
	get_all(self.nspace, size);
	fence();
}

/* A get waits for a value that is committed late, and no longer than its timeout for one that never
 * is. */
static void late(void) {
	if (self.rank == size - 1)
		sleep(1);
	put_own();
	get_all(self.nspace, size);
	pmix_info in_time = int_info("pmix.timeout", 1);
	pmix_value *found;
	pmix_proc next = proc_of(self.nspace, (self.rank + 1) % size);
	pmix_status got = CALL("PMIx_Get", (const pmix_proc *, const char *, const pmix_info *, size_t, pmix_value **), (&next, "never", &in_time, 1, &found));
	if (got != NOT_FOUND && got != TIMED_OUT)
		want(got, NOT_FOUND, "get of nothing");
	fence();
}

static pmix_status lookup(const char *key, pmix_info *infos, size_t n, pmix_pdata *found) {
	*found = (pmix_pdata){0};
	snprintf(found->key, sizeof found->key, "%s", key);
	return CALL("PMIx_Lookup", (pmix_pdata *, size_t, const pmix_info *, size_t), (found, 1, infos, n));
}

static void publish(void) {
	pmix_pdata found;
	if (self.rank == 0) {
		want(lookup("service", NULL, 0, &found), NOT_FOUND, "lookup of nothing");
		pmix_info soon[] = {int_info("pmix.wait", 0), int_info("pmix.timeout", 1)};
		want(lookup("service", soon, 2, &found), TIMED_OUT, "lookup in time");
		pmix_info all[] = {text_info("service", "port 7"), int_info("count", 7)};
		want(CALL("PMIx_Publish", (const pmix_info *, size_t), (all, 2)), SUCCESS, "publish");
	}
	pmix_info waiting = int_info("pmix.wait", 0);
	want(lookup("service", &waiting, 1, &found), SUCCESS, "lookup");
	if (found.value.type != T_STRING || strcmp(found.value.data.string, "port 7") || found.proc.rank != 0 || strcmp(found.proc.nspace, self.nspace))
		printf("rank %u: found %s of %s %u\n", self.rank, found.value.data.string, found.proc.nspace, found.proc.rank), exit(1);
	want(lookup("count", &waiting, 1, &found), SUCCESS, "lookup of a number");
	if (found.value.type != T_INT || found.value.data.integer != 7)
		printf("rank %u: found %d\n", self.rank, found.value.data.integer), exit(1);
	fence();
	if (self.rank == 0) {
		char *keys[] = {"service", "count", NULL};
		want(CALL("PMIx_Unpublish", (char **, const pmix_info *, size_t), (keys, NULL, 0)), SUCCESS, "unpublish");
	}
	fence();
	want(lookup("service", NULL, 0, &found), NOT_FOUND, "lookup of what was taken back");
	fence();
}

static volatile int heard, heard_of = -1, exit_code = -1;

static void on_event(size_t id, pmix_status code, const pmix_proc *source, pmix_info *infos, size_t n, pmix_info *results, size_t nresults,
                     event_done done, void *data) {
	(void)id, (void)source, (void)results, (void)nresults;
	for (size_t i = 0; i < n; i++) {
		if (!strcmp(infos[i].key, "pmix.evproc") && infos[i].value.type == T_PROC)
			heard_of = infos[i].value.data.proc->rank;
		if (!strcmp(infos[i].key, "pmix.exit.code"))
			exit_code = infos[i].value.data.integer;
		if (!strcmp(infos[i].key, "what") && !strcmp(infos[i].value.data.string, "words"))
			heard_of = 1000;
	}
	heard = code;
	if (done)
		done(-334 /* PMIX_EVENT_ACTION_COMPLETE */, NULL, 0, NULL, NULL, data);
}

static volatile bool listening;

static void on_listening(pmix_status status, size_t id, void *data) {
	(void)id, (void)data;
	want(status, SUCCESS, "register for an event");
	listening = true;
}

static void listen_for(pmix_status code) {
	listening = false;
	heard = 0;
	CALL("PMIx_Register_event_handler", (pmix_status *, size_t, pmix_info *, size_t, handler, handler_done, void *),
	     (&code, 1, NULL, 0, on_event, on_listening, NULL));
	while (!listening)
		usleep(1000);
}

static void await(pmix_status code) {
	for (int i = 0; i < 20000 && heard != code; i++)
		usleep(1000);
	want(heard, code, "an event");
}

static void event(void) {
	listen_for(OURS);
	fence();
	if (self.rank == 0) {
		pmix_info what = text_info("what", "words");
		want(CALL("PMIx_Notify_event", (pmix_status, const pmix_proc *, uint8_t, const pmix_info *, size_t, op_done, void *),
		          (OURS, &self, SESSION, &what, 1, NULL, NULL)), SUCCESS, "notify");
	}
	if (self.rank != 0) { /* some versions do not notify the sender */
		await(OURS);
		want(heard_of, 1000, "what an event is about");
	}
	fence();
}

static void death(void) {
	listen_for(ABORTED);
	fence();
	if (self.rank == size - 1)
		kill(getpid(), SIGKILL);
	await(ABORTED);
	want(heard_of, size - 1, "who has died");
	want(exit_code, 137, "how it has died");
}

static void abort_job(void) {
	fence();
	if (self.rank == size - 1)
		want(CALL("PMIx_Abort", (int, const char *, pmix_proc *, size_t), (42, "enough of it", NULL, 0)), SUCCESS, "abort");
	else
		sleep(600);
}

static char **program;

static void meet(const char *other) {
	pmix_proc both[] = {proc_of(self.nspace, ALL), proc_of(other, ALL)};
	if (strcmp(self.nspace, other) > 0) {
		both[0] = proc_of(other, ALL);
		both[1] = proc_of(self.nspace, ALL);
	}
	want(CALL("PMIx_Connect", (const pmix_proc *, size_t, const pmix_info *, size_t), (both, 2, NULL, 0)), SUCCESS, "connect");
	get_all(other, get_number(proc_of(other, ALL), "pmix.job.size"));
	get_all(self.nspace, size);
	want(CALL("PMIx_Disconnect", (const pmix_proc *, size_t, const pmix_info *, size_t), (both, 2, NULL, 0)), SUCCESS, "disconnect");
}

/* Rank 0 spawns a job, and all ranks of both jobs connect. */
static void spawn(void) {
	listen_for(JOB_ENDED);
	put_own();
	char other[LONGEST_NSPACE + 1] = "";
	if (self.rank == 0) {
		char *argv[] = {program[0], program[1], "spawned", NULL}, *env[] = {"SPAWNED_BY=us", NULL};
		pmix_app app = {.cmd = program[0], .argv = argv, .env = env, .maxprocs = 3};
		want(CALL("PMIx_Spawn", (const pmix_info *, size_t, const pmix_app *, size_t, char *), (NULL, 0, &app, 1, other)), SUCCESS, "spawn");
		put("spawned-job", other);
		commit();
	}
	pmix_info collect = flag_info("pmix.collect");
	want(fence_with(&collect, 1), SUCCESS, "fence");
	pmix_value *found;
	want(get(proc_of(self.nspace, 0), "spawned-job", &found), SUCCESS, "get");
	meet(found->data.string);
	await(JOB_ENDED);
	fence();
}

static void spawned(void) {
	const char *by = getenv("SPAWNED_BY");
	pmix_value *parent;
	want(get(job, "pmix.parent", &parent), SUCCESS, "the parent");
	if (by == NULL || strcmp(by, "us") || parent->type != T_PROC)
		printf("rank %u: spawned by %s\n", self.rank, by), exit(1);
	put_own();
	fence();
	meet(parent->data.proc->nspace);
}

static void query(void) {
	pmix_info *found = NULL;
	size_t n = 0;
	char *keys[] = {"pmix.qry.ns", NULL}, *nothing[] = {"pmix.qry.nothing", NULL};
	pmix_query q = {.keys = keys}, none = {.keys = nothing};
	want(CALL("PMIx_Query_info", (pmix_query *, size_t, pmix_info **, size_t *), (&q, 1, &found, &n)), SUCCESS, "query");
	if (n < 1 || found[0].value.type != T_STRING || strstr(found[0].value.data.string, self.nspace) == NULL)
		printf("rank %u: queried %zu\n", self.rank, n), exit(1);
	pmix_status got = CALL("PMIx_Query_info", (pmix_query *, size_t, pmix_info **, size_t *), (&none, 1, &found, &n));
	if (got == SUCCESS)
		want(got, NOT_FOUND, "query of nothing");
	fence();
}

static void log_words(void) {
	pmix_info words = text_info("pmix.log.stderr", "told by the server\n");
	want(CALL("PMIx_Log", (const pmix_info *, size_t, const pmix_info *, size_t), (&words, 1, NULL, 0)), SUCCESS, "log");
	fence();
}

/* The last rank enters no fence before the timeout of the others. */
static void timeout(void) {
	pmix_info in_time = int_info("pmix.timeout", 1);
	if (self.rank == 0)
		want(fence_with(&in_time, 1), TIMED_OUT, "fence in time");
	else
		sleep(3);
}

static void unsupported(void) {
	pmix_info how = flag_info("pmix.jctrl.pause"), *found = NULL;
	size_t n = 0;
	want(CALL("PMIx_Job_control", (const pmix_proc *, size_t, const pmix_info *, size_t, pmix_info **, size_t *), (&job, 1, &how, 1, &found, &n)),
	     NOT_SUPPORTED, "job control");
	want(CALL("PMIx_Allocation_request", (uint8_t, pmix_info *, size_t, pmix_info **, size_t *), (1, &how, 1, &found, &n)), NOT_SUPPORTED, "allocation");
	fence();
}

static void told(void) {
	want(get_number(job, "pmix.univ.size"), 9, "the universe");
	want(get_number(job, "pmix.local.size"), 2, "ranks here");
	want(get_number(self, "pmix.lrank"), self.rank % 2, "the local rank");
	pmix_value *host;
	want(get(self, "pmix.hname", &host), SUCCESS, "the host");
	char wanted[16];
	snprintf(wanted, sizeof wanted, "n%u", self.rank / 2);
	if (strcmp(host->data.string, wanted))
		printf("rank %u: is on %s\n", self.rank, host->data.string), exit(1);
	fence();
}

static void nothing(void) {}

static pmix_status make_group(const char *name, const pmix_proc *all, size_t size, pmix_info **found, size_t *n) {
	pmix_info assign = flag_info("pmix.grp.actxid");
	return CALL("PMIx_Group_construct", (const char *, const pmix_proc *, size_t, const pmix_info *, size_t, pmix_info **, size_t *),
		    (name, all, size, &assign, 1, found, n));
}

static void end_group(const char *name) {
	want(CALL("PMIx_Group_destruct", (const char *, const pmix_info *, size_t), (name, NULL, 0)), SUCCESS, "end a group");
}

/* A group of each rank alone, and two groups of all ranks, one after the other: all ranks get the
 * same number for a group, and the numbers of the two groups differ. */
static void groups(void) {
	for (int round = 0; round < 3; round++) {
		pmix_info *found = NULL;
		size_t n = 0;
		char name[16];
		snprintf(name, sizeof name, "me-%u", self.rank);
		want(make_group(name, &self, 1, &found, &n), SUCCESS, "make a group of one");
		end_group(name);
	}
	char last[32] = "";
	for (int round = 0; round < 2; round++) {
		pmix_proc all[16];
		for (uint32_t i = 0; i < size; i++)
			all[i] = proc_of(self.nspace, i);
		pmix_info *found = NULL;
		size_t n = 0;
		want(make_group("us", all, size, &found, &n), SUCCESS, "make a group");
		char own[32] = "", key[16];
		for (size_t i = 0; i < n; i++)
			if (!strcmp(found[i].key, "pmix.grp.ctxid"))
				snprintf(own, sizeof own, "%lu", (unsigned long)found[i].value.data.uint64);
		snprintf(key, sizeof key, "group-%d", round);
		put(key, own);
		commit();
		pmix_info collect = flag_info("pmix.collect");
		want(fence_with(&collect, 1), SUCCESS, "fence");
		pmix_value *others;
		want(get(proc_of(self.nspace, (self.rank + 2) % size), key, &others), SUCCESS, "get");
		if (own[0] == 0 || !strcmp(own, last) || strcmp(own, others->data.string))
			printf("rank %u: the group's number is %s, after %s, and %s\n", self.rank, own, last, others->data.string), exit(1);
		snprintf(last, sizeof last, "%s", own);
		end_group("us");
	}
}

/* Each rank puts a large value that cannot be compressed, because version 5 compresses values. */
static void much(void) {
	enum { MUCH = 4 << 20 };
	unsigned char *bytes = malloc(MUCH);
	uint32_t random = 1;
	for (size_t i = 0; i < MUCH; i++)
		bytes[i] = (random = random * 1664525 + 1013904223) >> 24;
	pmix_value v = {.type = T_BYTES};
	v.data.bytes = (pmix_bytes){(char *)bytes, MUCH};
	want(CALL("PMIx_Put", (uint8_t, const char *, pmix_value *), (SCOPE_GLOBAL, "much", &v)), SUCCESS, "put");
	commit();
	pmix_info collect = flag_info("pmix.collect");
	want(fence_with(&collect, 1), SUCCESS, "fence with much");
	pmix_value *found;
	want(get(proc_of(self.nspace, (self.rank + 2) % size), "much", &found), SUCCESS, "get");
	if (found->type != T_BYTES || found->data.bytes.size != MUCH || memcmp(found->data.bytes.bytes, bytes, MUCH))
		printf("rank %u: got other bytes\n", self.rank), exit(1);
	fence();
}

int main(int argc, char **argv) {
	static const struct { const char *name; void (*does)(void); } scenarios[] = {
		{"exchange", exchange}, {"modex", modex}, {"late", late}, {"publish", publish}, {"event", event}, {"death", death}, {"abort", abort_job},
		{"spawn", spawn}, {"spawned", spawned}, {"query", query}, {"log", log_words}, {"timeout", timeout}, {"unsupported", unsupported},
		{"told", told}, {"nothing", nothing}, {"much", much}, {"group", groups},
	};
	program = argv;
	if (argc != 3 || (library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL)) == NULL)
		return printf("no library: %s\n", dlerror()), 2;
	init();
	for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
		if (!strcmp(argv[2], scenarios[i].name)) {
			scenarios[i].does();
			finalize();
			printf("fine\n");
			return 0;
		}
	return printf("no scenario %s\n", argv[2]), 2;
}
