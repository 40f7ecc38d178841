/* The child process that serves PMIx. It loads a libpmix, receives orders from the daemon as
 * frames, and passes the requests of clients to the daemon as frames. A frame consists of its
 * length, an operation, an ID and the operation's fields. Numbers have 32 bits in big-endian
 * order; a text or bytes are preceded by their length. Requests to the daemon wait in a table,
 * by ID, for the answer. The child makes no decisions of its own; the daemon does. */
#define _GNU_SOURCE
#include "child.h"
#include "abi.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the library */

static void *library;
static int major;

#define DECLARE(result, name, ...) static result (*name)(__VA_ARGS__)
DECLARE(pmix_status, PMIx_server_init, void *, pmix_info *, size_t);
DECLARE(pmix_status, PMIx_server_finalize, void);
DECLARE(pmix_status, PMIx_server_register_nspace, const char *, int, pmix_info *, size_t, op_done, void *);
DECLARE(void, PMIx_server_deregister_nspace, const char *, op_done, void *);
DECLARE(pmix_status, PMIx_server_register_client, const pmix_proc *, uid_t, gid_t, void *, op_done, void *);
DECLARE(pmix_status, PMIx_server_setup_fork, const pmix_proc *, char ***);
DECLARE(pmix_status, PMIx_server_dmodex_request, const pmix_proc *, dmodex_done, void *);
DECLARE(pmix_status, PMIx_generate_regex, const char *, char **);
DECLARE(pmix_status, PMIx_generate_ppn, const char *, char **);
DECLARE(pmix_status, PMIx_Notify_event, pmix_status, const pmix_proc *, uint8_t, const pmix_info *, size_t, op_done, void *);
DECLARE(const char *, PMIx_Get_version, void);
DECLARE(pmix_status, PMIx_Info_load, pmix_info *, const char *, const void *, uint16_t);
DECLARE(pmix_status, PMIx_Data_pack, const pmix_proc *, pmix_buffer *, void *, int32_t, uint16_t);
DECLARE(pmix_status, PMIx_Data_unpack, const pmix_proc *, pmix_buffer *, void *, int32_t *, uint16_t);

static const char *missing;

static void *symbol(const char *name, bool needed) {
	void *found = dlsym(library, name);
	if (found == NULL && needed && missing == NULL)
		missing = name;
	return found;
}

static void load_symbols(void) {
#define LOAD(name, needed) name = symbol(#name, needed)
	LOAD(PMIx_server_init, true);
	LOAD(PMIx_server_finalize, true);
	LOAD(PMIx_server_register_nspace, true);
	LOAD(PMIx_server_deregister_nspace, true);
	LOAD(PMIx_server_register_client, true);
	LOAD(PMIx_server_setup_fork, true);
	LOAD(PMIx_server_dmodex_request, true);
	LOAD(PMIx_generate_regex, true);
	LOAD(PMIx_generate_ppn, true);
	LOAD(PMIx_Notify_event, true);
	LOAD(PMIx_Get_version, true);
	LOAD(PMIx_Info_load, false); /* not in version 3 */
	LOAD(PMIx_Data_pack, true);
	LOAD(PMIx_Data_unpack, true);
}

/* ---- frames */

typedef struct { unsigned char *bytes; size_t used, room, at; bool bad; } frame;

static const size_t longest_frame = 256 << 20;

/* Limits: the number of items of a list, the nesting depth of lists (the daemon's lists have a
 * depth of two), and the size of an event in bytes, because it is sent to all nodes. */
enum { MOST_ITEMS = 2 << 20, DEEPEST = 8, LONGEST_EVENT = 1 << 20 };

/* Minimum encoded sizes in bytes of a process, a key with its value, and a published entry. */
enum { LEAST_PROC = 8, LEAST_INFO = 12, LEAST_ENTRY = 16 };

static int from_daemon, to_daemon;
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

/* sure aborts the process if memory is NULL. */
static void *sure(void *memory) {
	if (memory == NULL)
		abort();
	return memory;
}

static void put(frame *f, const void *bytes, size_t n) {
	if (f->used + n > f->room) {
		f->room = 2 * (f->used + n) + 256;
		f->bytes = sure(realloc(f->bytes, f->room));
	}
	if (n > 0)
		memcpy(f->bytes + f->used, bytes, n);
	f->used += n;
}

static void put_byte(frame *f, int value) {
	unsigned char byte = value;
	put(f, &byte, 1);
}

static void put_number(frame *f, uint32_t value) {
	value = htonl(value);
	put(f, &value, 4);
}

static void put_bytes(frame *f, const void *bytes, size_t n) {
	put_number(f, n);
	put(f, bytes, n);
}

static void put_text(frame *f, const char *text) { put_bytes(f, text ? text : "", text ? strlen(text) : 0); }

static void put_texts(frame *f, char **texts) {
	uint32_t n = 0;
	while (texts != NULL && texts[n] != NULL)
		n++;
	put_number(f, n);
	for (uint32_t i = 0; i < n; i++)
		put_text(f, texts[i]);
}

static void put_proc(frame *f, const pmix_proc *p) {
	put_text(f, p ? p->nspace : "");
	put_number(f, p ? p->rank : 0);
}

static void put_procs(frame *f, const pmix_proc *procs, size_t n) {
	put_number(f, n);
	for (size_t i = 0; i < n; i++)
		put_proc(f, procs + i);
}

/* put_value encodes a value as text, because the values that the daemon inspects are short. */
static void put_value(frame *f, const pmix_value *v) {
	char text[32] = "";
	switch (v->type) {
	case T_STRING: put_text(f, v->data.string); return;
	case T_BYTES: put_bytes(f, v->data.bytes.bytes, v->data.bytes.size); return;
	case T_PROC: put_text(f, v->data.proc ? v->data.proc->nspace : ""); return;
	case T_BOOL: snprintf(text, sizeof text, "%d", v->data.flag); break;
	case T_INT: case T_INT32: case T_STATUS: snprintf(text, sizeof text, "%d", v->data.integer); break;
	case T_UINT: case T_UINT32: case T_RANK: snprintf(text, sizeof text, "%u", v->data.uint32); break;
	case T_UINT16: snprintf(text, sizeof text, "%u", v->data.uint16); break;
	case T_SIZE: case T_UINT64: snprintf(text, sizeof text, "%lu", (unsigned long)v->data.uint64); break;
	case T_BYTE: case T_RANGE: case T_PERSISTENCE: case T_SCOPE: snprintf(text, sizeof text, "%u", v->data.byte); break;
	}
	put_text(f, text);
}

static void put_infos(frame *f, const pmix_info *infos, size_t n) {
	put_number(f, n);
	for (size_t i = 0; i < n; i++) {
		put_text(f, infos[i].key);
		put_byte(f, infos[i].flags & REQUIRED);
		put_value(f, &infos[i].value);
	}
}

/* put_packed encodes data that only another libpmix will read in the format of the library. */
static void put_packed(frame *f, void *what, int32_t n, uint16_t type) {
	pmix_buffer b = {0};
	if (n > 0 && PMIx_Data_pack(NULL, &b, what, n, type) != SUCCESS)
		b.used = 0;
	put_bytes(f, b.base, b.used);
	free(b.base);
}

/* send_frame sends a frame and frees it. It returns false, and does not send the frame, if it is
 * too long. */
static bool send_frame(frame *f) {
	if (f->used > longest_frame) {
		free(f->bytes);
		return false;
	}
	uint32_t length = htonl(f->used);
	pthread_mutex_lock(&writing);
	for (int part = 0; part < 2; part++) {
		const unsigned char *bytes = part ? f->bytes : (unsigned char *)&length;
		size_t left = part ? f->used : 4;
		while (left > 0) {
			ssize_t n = write(to_daemon, bytes, left);
			if (n < 0 && errno == EINTR)
				continue;
			if (n <= 0)
				_exit(CHILD_ORPHAN);
			bytes += n, left -= n;
		}
	}
	pthread_mutex_unlock(&writing);
	free(f->bytes);
	return true;
}

static bool read_all(void *into, size_t n) {
	for (char *at = into; n > 0;) {
		ssize_t got = read(from_daemon, at, n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		at += got, n -= got;
	}
	return true;
}

/* take_frame reads the next frame. It returns false if the daemon has closed the pipe or on an
 * error. */
static bool take_frame(frame *f) {
	uint32_t length;
	if (!read_all(&length, 4))
		return false;
	length = ntohl(length);
	if (length > longest_frame) {
		fprintf(stderr, "cannot read a message of the daemon: %u bytes are too many\n", length);
		return false;
	}
	free(f->bytes);
	*f = (frame){.bytes = sure(malloc(length + 1)), .used = length};
	return read_all(f->bytes, length);
}

static int get_byte(frame *f) {
	if (f->at + 1 > f->used) {
		f->bad = true;
		return 0;
	}
	return f->bytes[f->at++];
}

static uint32_t get_number(frame *f) {
	uint32_t value;
	if (f->at + 4 > f->used) {
		f->bad = true;
		return 0;
	}
	memcpy(&value, f->bytes + f->at, 4);
	f->at += 4;
	return ntohl(value);
}

/* get_bytes returns a copy that the caller must free, followed by a zero byte. */
static char *get_bytes(frame *f, size_t *n) {
	uint32_t length = get_number(f);
	if (length > f->used - f->at)
		f->bad = true, length = 0;
	char *copy = sure(malloc(length + 1));
	memcpy(copy, f->bytes + f->at, length);
	copy[length] = 0;
	f->at += length;
	if (n != NULL)
		*n = length;
	return copy;
}

static char *get_text(frame *f) { return get_bytes(f, NULL); }

/* get_count reads the number of items that follow. Each item has at least the given number of
 * bytes. */
static uint32_t get_count(frame *f, size_t least) {
	uint32_t n = get_number(f);
	if (n > (f->used - f->at) / least || n > MOST_ITEMS)
		f->bad = true, n = 0;
	return n;
}

static void get_name(frame *f, char *into, size_t longest) {
	char *text = get_text(f);
	snprintf(into, longest + 1, "%s", text);
	free(text);
}

static pmix_proc get_proc(frame *f) {
	pmix_proc p = {0};
	get_name(f, p.nspace, LONGEST_NSPACE);
	p.rank = get_number(f);
	return p;
}

static pmix_info *get_infos(frame *f, size_t *n, int depth);

/* has_words reports whether a text consists of non-empty words with one separator between them.
 * libpmix crashes on other maps. */
static bool has_words(const char *text, const char *separators) {
	for (;; text++) {
		size_t length = strcspn(text, separators);
		if (length == 0)
			return false;
		if (text[length] == 0)
			return true;
		text += length;
	}
}

/* make_map decodes the node map or the rank map of a job and encodes it in the format of the
 * library. */
static void make_map(frame *f, pmix_info *info, bool of_ranks) {
	char *text = get_text(f), *map = NULL;
	info->value.type = T_STRING;
	if (f->bad || !has_words(text, ",;") || (of_ranks && strspn(text, "0123456789,;") != strlen(text))) {
		f->bad = true;
		free(text);
		return;
	}
	if ((of_ranks ? PMIx_generate_ppn : PMIx_generate_regex)(text, &map) != SUCCESS || map == NULL) {
		f->bad = true;
		free(text);
		return;
	}
	if (major >= 4 && PMIx_Info_load != NULL) {
		char key[LONGEST_KEY + 1];
		memcpy(key, info->key, sizeof key);
		PMIx_Info_load(info, key, map, T_REGEX);
		free(map);
	} else {
		info->value.data.string = map;
	}
	free(text);
}

static void get_procs(frame *f, pmix_value *v) {
	uint32_t n = get_count(f, LEAST_PROC);
	pmix_proc *procs = sure(calloc(n + 1, sizeof *procs));
	for (uint32_t i = 0; i < n; i++)
		procs[i] = get_proc(f);
	v->type = T_ARRAY;
	v->data.array = sure(malloc(sizeof(pmix_array)));
	*v->data.array = (pmix_array){T_PROC, n, procs};
}

static void get_info(frame *f, pmix_info *info, int depth) {
	get_name(f, info->key, LONGEST_KEY);
	uint32_t type = get_number(f);
	pmix_value *v = &info->value;
	v->type = type;
	switch (type) {
	case T_STRING: v->data.string = get_text(f); break;
	case T_BOOL: v->data.flag = get_number(f) != 0; break;
	case T_UINT16: v->data.uint16 = get_number(f); break;
	case T_UINT32: case T_RANK: case T_INT: case T_STATUS: v->data.uint32 = get_number(f); break;
	case T_SIZE:
		v->data.uint64 = (uint64_t)get_number(f) << 32;
		v->data.uint64 |= get_number(f);
		break;
	case T_BYTES: v->data.bytes.bytes = get_bytes(f, &v->data.bytes.size); break;
	case T_PROC:
		v->data.proc = sure(malloc(sizeof(pmix_proc)));
		*v->data.proc = get_proc(f);
		break;
	case T_ARRAY:
		v->data.array = sure(calloc(1, sizeof(pmix_array)));
		v->data.array->type = T_INFO;
		v->data.array->array = get_infos(f, &v->data.array->size, depth + 1);
		break;
	case CHILD_PROCS: get_procs(f, v); break;
	case CHILD_NODE_MAP: make_map(f, info, false); break;
	case CHILD_RANK_MAP: make_map(f, info, true); break;
	default: f->bad = true, v->type = T_BOOL;
	}
}

static pmix_info *get_infos(frame *f, size_t *n, int depth) {
	*n = get_count(f, LEAST_INFO);
	if (depth > DEEPEST)
		f->bad = true, *n = 0;
	pmix_info *infos = sure(calloc(*n + 1, sizeof *infos));
	for (size_t i = 0; i < *n && !f->bad; i++)
		get_info(f, infos + i, depth);
	return infos;
}

static void free_infos(pmix_info *infos, size_t n);

/* free_value frees the content of a value. Values of other types, which a client may have
 * published, are not freed, because only the library can free them. */
static void free_value(pmix_value *v) {
	switch (v->type) {
	case T_STRING: free(v->data.string); break;
	case T_PROC: free(v->data.proc); break;
	case T_BYTES: case T_REGEX: free(v->data.bytes.bytes); break;
	case T_ARRAY:
		if (v->data.array == NULL || (v->data.array->type != T_INFO && v->data.array->type != T_PROC))
			break;
		if (v->data.array->type == T_INFO)
			free_infos(v->data.array->array, v->data.array->size);
		else
			free(v->data.array->array);
		free(v->data.array);
	}
}

static void free_infos(pmix_info *infos, size_t n) {
	for (size_t i = 0; i < n; i++)
		free_value(&infos[i].value);
	free(infos);
}

/* ---- requests of clients: each waits for the daemon's answer */

typedef struct { int op; void *done, *data; uint32_t id; } waiting;

static waiting *table;
static size_t waits, room;
static uint32_t last_id;
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;

/* ask registers a request, with the callback for its answer, and returns a frame that contains
 * its header. */
static frame ask(int op, void *done, void *data) {
	pthread_mutex_lock(&asking);
	if (waits == room) {
		room = 2 * room + 64;
		table = sure(realloc(table, room * sizeof *table));
	}
	uint32_t id = ++last_id;
	table[waits++] = (waiting){op, done, data, id};
	pthread_mutex_unlock(&asking);
	frame f = {0};
	put_byte(&f, op);
	put_number(&f, id);
	return f;
}

/* answered removes a request from the table. It returns false if there is no request with this
 * ID. */
static bool answered(uint32_t id, waiting *w) {
	bool found = false;
	pthread_mutex_lock(&asking);
	for (size_t i = 0; i < waits && !found; i++)
		if (table[i].id == id) {
			*w = table[i];
			table[i] = table[--waits];
			found = true;
		}
	pthread_mutex_unlock(&asking);
	return found;
}

/* sent sends a request and returns the result of the library's callback. If the request is too
 * long, it is removed from the table, because no answer will arrive. */
static pmix_status sent(frame *f) {
	uint32_t id;
	memcpy(&id, f->bytes + 1, 4);
	if (send_frame(f))
		return SUCCESS;
	waiting none;
	answered(ntohl(id), &none);
	return TOO_MUCH;
}

static pmix_status connected2(const pmix_proc *p, void *object, pmix_info *infos, size_t n, op_done done, void *data) {
	frame f = ask(UP_CONNECTED, done, data);
	put_proc(&f, p);
	return sent(&f);
}

static pmix_status connected(const pmix_proc *p, void *object, op_done done, void *data) {
	return connected2(p, object, NULL, 0, done, data);
}

static pmix_status finalized(const pmix_proc *p, void *object, op_done done, void *data) {
	frame f = ask(UP_FINALIZED, done, data);
	put_proc(&f, p);
	return sent(&f);
}

static pmix_status aborting(const pmix_proc *p, void *object, int status, const char *words, pmix_proc *procs, size_t n,
                            op_done done, void *data) {
	frame f = ask(UP_ABORT, done, data);
	put_proc(&f, p);
	put_number(&f, status);
	put_text(&f, words);
	return sent(&f);
}

static pmix_status fence(const pmix_proc *procs, size_t n, const pmix_info *infos, size_t ninfo, char *bytes, size_t size,
                         modex_done done, void *data) {
	frame f = ask(UP_FENCE, done, data);
	put_procs(&f, procs, n);
	put_infos(&f, infos, ninfo);
	put_bytes(&f, bytes, size);
	free(bytes);
	return sent(&f);
}

static pmix_status direct_modex(const pmix_proc *p, const pmix_info *infos, size_t n, modex_done done, void *data) {
	frame f = ask(UP_MODEX, done, data);
	put_proc(&f, p);
	put_infos(&f, infos, n);
	return sent(&f);
}

static pmix_status publish(const pmix_proc *p, const pmix_info *infos, size_t n, op_done done, void *data) {
	frame f = ask(UP_PUBLISH, done, data);
	put_proc(&f, p);
	put_infos(&f, infos, n);
	for (size_t i = 0; i < n; i++)
		put_packed(&f, (void *)&infos[i].value, 1, T_VALUE);
	return sent(&f);
}

static pmix_status lookup(const pmix_proc *p, char **keys, const pmix_info *infos, size_t n, lookup_done done, void *data) {
	frame f = ask(UP_LOOKUP, done, data);
	put_proc(&f, p);
	put_infos(&f, infos, n);
	put_texts(&f, keys);
	return sent(&f);
}

static pmix_status unpublish(const pmix_proc *p, char **keys, const pmix_info *infos, size_t n, op_done done, void *data) {
	frame f = ask(UP_UNPUBLISH, done, data);
	put_proc(&f, p);
	put_texts(&f, keys);
	return sent(&f);
}

static pmix_status spawn(const pmix_proc *p, const pmix_info *infos, size_t n, const pmix_app *apps, size_t napps,
                         spawn_done done, void *data) {
	frame f = ask(UP_SPAWN, done, data);
	put_proc(&f, p);
	put_infos(&f, infos, n);
	put_number(&f, napps);
	for (size_t i = 0; i < napps; i++) {
		put_text(&f, apps[i].cmd);
		put_texts(&f, apps[i].argv);
		put_texts(&f, apps[i].env);
		put_text(&f, apps[i].cwd);
		put_number(&f, apps[i].maxprocs);
		put_infos(&f, apps[i].info, apps[i].ninfo);
	}
	return sent(&f);
}

static pmix_status meet(int op, const pmix_proc *procs, size_t n, const pmix_info *infos, size_t ninfo, op_done done, void *data) {
	frame f = ask(op, done, data);
	put_procs(&f, procs, n);
	put_infos(&f, infos, ninfo);
	return sent(&f);
}

/* all_here reports whether all members of a group are on this node. */
static bool all_here(const pmix_info *infos, size_t n) {
	for (size_t i = 0; i < n; i++)
		if (!strcmp(infos[i].key, "pmix.grp.lcl"))
			return true;
	return false;
}

/* group handles the creation and the end of a group. Open MPI's sessions create communicators
 * from groups. The end of a group whose members are all on this node must be confirmed at once:
 * otherwise version 5 requests it a second time, and crashes on the second answer. */
static pmix_status group(int op, char *name, const pmix_proc *procs, size_t n, const pmix_info *infos, size_t ninfo, info_done done, void *data) {
	if (op == GROUP_ENDS && all_here(infos, ninfo))
		return OPERATION_SUCCEEDED;
	frame f = ask(UP_GROUP, done, data);
	put_byte(&f, op);
	put_text(&f, name);
	put_procs(&f, procs, n);
	put_infos(&f, infos, ninfo);
	return sent(&f);
}

static pmix_status connecting(const pmix_proc *procs, size_t n, const pmix_info *infos, size_t ninfo, op_done done, void *data) {
	return meet(UP_CONNECT, procs, n, infos, ninfo, done, data);
}

static pmix_status disconnecting(const pmix_proc *procs, size_t n, const pmix_info *infos, size_t ninfo, op_done done, void *data) {
	return meet(UP_DISCONNECT, procs, n, infos, ninfo, done, data);
}

/* register_events does nothing, because all events are sent to every node. */
static pmix_status register_events(pmix_status *codes, size_t n, const pmix_info *infos, size_t ninfo, op_done done, void *data) {
	return OPERATION_SUCCEEDED;
}

static pmix_status deregister_events(pmix_status *codes, size_t n, op_done done, void *data) { return OPERATION_SUCCEEDED; }

/* notify completes at once, because version 4.2.2 crashes if the answer arrives later. */
static pmix_status notify(pmix_status code, const pmix_proc *source, uint8_t range, pmix_info *infos, size_t n, op_done done, void *data) {
	frame f = {0};
	put_byte(&f, UP_NOTIFY);
	put_number(&f, 0);
	put_number(&f, code);
	put_proc(&f, source);
	put_byte(&f, range);
	put_number(&f, n);
	put_packed(&f, infos, n, T_INFO);
	if (f.used > LONGEST_EVENT) {
		free(f.bytes);
		return TOO_MUCH;
	}
	return send_frame(&f) ? OPERATION_SUCCEEDED : TOO_MUCH;
}

static pmix_status query(pmix_proc *p, pmix_query *queries, size_t n, info_done done, void *data) {
	frame f = ask(UP_QUERY, done, data);
	put_proc(&f, p);
	put_number(&f, n);
	for (size_t i = 0; i < n; i++) {
		put_texts(&f, queries[i].keys);
		put_infos(&f, queries[i].qualifiers, queries[i].nqual);
	}
	return sent(&f);
}

static void *refuse_log(void *request) {
	waiting w = *(waiting *)request;
	free(request);
	((op_done)w.done)(TOO_MUCH, w.data);
	return NULL;
}

/* log_words must not call done itself, because the library holds a lock. The answer is given by
 * another thread, also if the request is too long to be sent. */
static void log_words(const pmix_proc *p, const pmix_info *infos, size_t n, const pmix_info *directives, size_t ndirectives,
                      op_done done, void *data) {
	frame f = ask(UP_LOG, done, data);
	put_proc(&f, p);
	put_infos(&f, infos, n);
	if (sent(&f) == SUCCESS)
		return;
	waiting *w = sure(malloc(sizeof *w));
	*w = (waiting){.done = done, .data = data};
	pthread_t thread;
	if (pthread_create(&thread, NULL, refuse_log, w) != 0)
		abort();
	pthread_detach(thread);
}

/* New versions extend pmix_server_module_t only at its end; in version 6 it has 256 bytes. The
 * zeros beyond that mean "not supported" in future versions. */
static void *module[64];

static void fill_module(void) {
	void *common[] = {
		[0] = connected, [1] = finalized, [2] = aborting, [3] = fence, [4] = direct_modex, [5] = publish, [6] = lookup, [7] = unpublish,
		[8] = spawn, [9] = connecting, [10] = disconnecting, [11] = register_events, [12] = deregister_events, [14] = notify, [15] = query,
		[17] = log_words,
	};
	memcpy(module, common, sizeof common);
	if (major >= 4) {
		module[25] = group;
		module[27] = connected2;
	}
}

static void answer_lookup(frame *f, pmix_status status, waiting *w) {
	uint32_t n = get_count(f, LEAST_ENTRY);
	pmix_pdata *found = sure(calloc(n + 1, sizeof *found));
	for (uint32_t i = 0; i < n && !f->bad; i++) {
		found[i].proc = get_proc(f);
		get_name(f, found[i].key, LONGEST_KEY);
		size_t size;
		char *packed = get_bytes(f, &size);
		pmix_buffer b = {packed, packed + size, packed, size, size};
		int32_t one = 1;
		if (PMIx_Data_unpack(NULL, &b, &found[i].value, &one, T_VALUE) != SUCCESS)
			status = FAILED;
		free(packed);
	}
	if (f->bad)
		status = FAILED;
	((lookup_done)w->done)(status, found, status == SUCCESS ? n : 0, w->data);
	for (uint32_t i = 0; i < n; i++)
		free_value(&found[i].value);
	free(found);
}

static void release_infos(void *infos) {
	/* Not freed, because the library may still read them. Queries and groups are rare, and their
	 * answers small. */
	(void)infos;
}

/* take_answer passes the daemon's answer to the callback of the request. */
static void take_answer(frame *f, uint32_t id) {
	waiting w;
	if (!answered(id, &w))
		return;
	pmix_status status = (int32_t)get_number(f);
	switch (w.op) {
	case UP_FENCE: case UP_MODEX: {
		size_t n;
		char *bytes = get_bytes(f, &n);
		((modex_done)w.done)(f->bad ? FAILED : status, n > 0 ? bytes : NULL, n, w.data, free, bytes);
		break;
	}
	case UP_SPAWN: {
		char nspace[LONGEST_NSPACE + 1];
		get_name(f, nspace, LONGEST_NSPACE);
		((spawn_done)w.done)(status, nspace, w.data);
		break;
	}
	case UP_LOOKUP: answer_lookup(f, status, &w); break;
	case UP_QUERY: case UP_GROUP: {
		size_t n;
		pmix_info *infos = get_infos(f, &n, 0);
		((info_done)w.done)(f->bad ? FAILED : status, infos, f->bad ? 0 : n, w.data, release_infos, infos);
		break;
	}
	default:
		if (w.done != NULL)
			((op_done)w.done)(status, w.data);
	}
}

/* ---- orders of the daemon */

/* done sends the result of an order. */
static void done(uint32_t id, pmix_status status, const void *bytes, size_t n) {
	frame f = {0};
	put_byte(&f, UP_DONE);
	put_number(&f, id);
	put_number(&f, status);
	put_bytes(&f, bytes, n);
	if (!send_frame(&f))
		done(id, TOO_MUCH, NULL, 0);
}

/* An order that the library completes later, with the data that must remain valid until then. */
typedef struct { uint32_t id; pmix_proc who; pmix_info *infos; size_t n; } order;

static order *new_order(uint32_t id) {
	order *o = sure(calloc(1, sizeof *o));
	o->id = id;
	return o;
}

static void answer_order(order *o, pmix_status status, const char *bytes, size_t n) {
	done(o->id, status, bytes, n);
	free_infos(o->infos, o->n);
	free(o);
}

static void op_is_done(pmix_status status, void *o) { answer_order(o, status, NULL, 0); }
static void modex_is_done(pmix_status status, char *bytes, size_t n, void *o) { answer_order(o, status, bytes, n); }

/* given handles the status with which the library accepted an order. If it is SUCCESS, the
 * library will call back; otherwise the order is complete. */
static void given(order *o, pmix_status status) {
	if (status != SUCCESS)
		answer_order(o, status == OPERATION_SUCCEEDED ? SUCCESS : status, NULL, 0);
}

static pmix_status init(frame *f) {
	size_t n;
	pmix_info *infos = get_infos(f, &n, 0);
	pmix_status status = f->bad ? FAILED : PMIx_server_init(module, infos, n);
	free_infos(infos, n);
	return status;
}

static void add_job(frame *f, order *o) {
	char nspace[LONGEST_NSPACE + 1];
	get_name(f, nspace, LONGEST_NSPACE);
	int local = get_number(f);
	o->infos = get_infos(f, &o->n, 0);
	given(o, f->bad ? FAILED : PMIx_server_register_nspace(nspace, local, o->infos, o->n, op_is_done, o));
}

static void remove_job(frame *f, order *o) {
	char nspace[LONGEST_NSPACE + 1];
	get_name(f, nspace, LONGEST_NSPACE);
	PMIx_server_deregister_nspace(nspace, op_is_done, o);
}

static void add_client(frame *f, order *o) {
	o->who = get_proc(f);
	given(o, f->bad ? FAILED : PMIx_server_register_client(&o->who, getuid(), getgid(), NULL, op_is_done, o));
}

static void fetch(frame *f, order *o) {
	o->who = get_proc(f);
	given(o, f->bad ? FAILED : PMIx_server_dmodex_request(&o->who, modex_is_done, o));
}

static void give_environment(frame *f, uint32_t id) {
	pmix_proc p = get_proc(f);
	char **env = sure(calloc(1, sizeof *env));
	pmix_status status = PMIx_server_setup_fork(&p, &env);
	frame list = {0};
	put_texts(&list, env);
	done(id, status, list.bytes, list.used);
	free(list.bytes);
	for (char **entry = env; entry != NULL && *entry != NULL; entry++)
		free(*entry);
	free(env);
}

/* pack returns the attributes of an event that the daemon creates, in the format of the library. */
static void pack(frame *f, uint32_t id) {
	size_t n;
	pmix_info *infos = get_infos(f, &n, 0);
	pmix_buffer b = {0};
	pmix_status status = f->bad ? FAILED : PMIx_Data_pack(NULL, &b, infos, n, T_INFO);
	done(id, status, b.base, status == SUCCESS ? b.used : 0);
	free(b.base);
	free_infos(infos, n);
}

static void tell_event(frame *f, order *o) {
	pmix_status code = (int32_t)get_number(f);
	o->who = get_proc(f);
	uint8_t range = get_byte(f);
	uint32_t count = get_number(f);
	size_t size;
	char *packed = get_bytes(f, &size);
	int32_t n = count <= size && count <= MOST_ITEMS ? count : 0;
	o->infos = sure(calloc(n + 1, sizeof *o->infos));
	pmix_buffer b = {packed, packed + size, packed, size, size};
	if (n > 0 && PMIx_Data_unpack(NULL, &b, o->infos, &n, T_INFO) != SUCCESS)
		n = 0;
	free(packed);
	o->n = n;
	given(o, PMIx_Notify_event(code, &o->who, range, o->infos, n, op_is_done, o));
}

/* obey executes an order of the daemon. */
static void obey(frame *f) {
	int op = get_byte(f);
	uint32_t id = get_number(f);
	switch (op) {
	case DO_ANSWER: take_answer(f, id); return;
	case DO_ENVIRONMENT: give_environment(f, id); return;
	case DO_PACK: pack(f, id); return;
	case DO_INIT: {
		pmix_status status = init(f);
		const char *version = PMIx_Get_version();
		done(id, status, version, strlen(version));
		return;
	}
	case DO_ADD_JOB: add_job(f, new_order(id)); return;
	case DO_REMOVE_JOB: remove_job(f, new_order(id)); return;
	case DO_ADD_CLIENT: add_client(f, new_order(id)); return;
	case DO_MODEX: fetch(f, new_order(id)); return;
	case DO_EVENT: tell_event(f, new_order(id)); return;
	}
	done(id, NOT_SUPPORTED, NULL, 0);
}

/* take_pipes moves the pipes of the daemon away from standard input and output, so that output
 * of the library does not corrupt the frames. */
static bool take_pipes(int in, int out) {
	from_daemon = fcntl(in, F_DUPFD_CLOEXEC, 3);
	to_daemon = fcntl(out, F_DUPFD_CLOEXEC, 3);
	int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return from_daemon >= 0 && to_daemon >= 0 && nothing >= 0 && dup2(nothing, in) >= 0 && dup2(STDERR_FILENO, out) >= 0;
}

/* crash_plainly restores the default actions of fatal signals, so that a crash of the library
 * ends the process by its signal. Go's handler would hide the cause behind the stacks of all
 * goroutines. */
static void crash_plainly(void) {
	const int crashes[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};
	for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
		signal(crashes[i], SIG_DFL);
	signal(SIGPIPE, SIG_IGN); /* write returns an error instead */
}

enum { LINGER = 2 }; /* seconds for the process to end by itself */

/* watch_daemon ends the process after the daemon has died and closed its end of the pipe, even
 * if the library hangs. */
static void *watch_daemon(void *none) {
	struct pollfd daemon = {.fd = from_daemon};
	while (poll(&daemon, 1, -1) <= 0)
		;
	sleep(LINGER);
	_exit(CHILD_ORPHAN);
	return none;
}

/* serve_pmix loads the library at path and executes the daemon's orders until in is closed. It
 * returns an exit code. */
int serve_pmix(const char *path, int in, int out) {
	crash_plainly();
	pthread_t watcher;
	if (!take_pipes(in, out) || pthread_create(&watcher, NULL, watch_daemon, NULL) != 0) {
		perror("cannot serve PMIx on standard input and output");
		return CHILD_UNFIT;
	}
	const char *unguarded = guard_port();
	if (unguarded != NULL) {
		fprintf(stderr, "cannot keep other users from the PMIx server's port: %s\n", unguarded);
		return CHILD_UNFIT;
	}
	library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (library == NULL) {
		fprintf(stderr, "cannot load %s: %s\n", path, dlerror());
		return CHILD_UNFIT;
	}
	load_symbols();
	if (missing != NULL) {
		fprintf(stderr, "cannot use %s as a PMIx server: it has no %s\n", path, missing);
		return CHILD_UNFIT;
	}
	if (sscanf(PMIx_Get_version(), "%*[^0-9]%d", &major) != 1 || major < 3) {
		fprintf(stderr, "cannot use %s as a PMIx server: it is %.80s, and version 3 or later is required\n", path, PMIx_Get_version());
		return CHILD_UNFIT;
	}
	fill_module();
	frame f = {0};
	while (take_frame(&f))
		obey(&f);
	PMIx_server_finalize();
	return 0;
}
