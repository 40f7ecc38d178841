/* The child's decoder for a fuzzer: it decodes arbitrary frames as the child does, with a library
 * that only reads its arguments. An input is a length and that many bytes; after each input, the
 * program writes one byte. It is built with sanitizers. */
#include "../child/child.c"

#include <assert.h>

bool is_own_connection(int connection) { return connection >= 0; }
const char *guard_port(void) { return NULL; }

/* read_infos reads all bytes that a library may. */
static volatile size_t sum;
static void read_infos(const pmix_info *infos, size_t n) {
	for (size_t i = 0; i < n; i++) {
		const pmix_value *v = &infos[i].value;
		sum += strlen(infos[i].key);
		if (v->type == T_STRING)
			sum += strlen(v->data.string);
		else if (v->type == T_PROC)
			sum += strlen(v->data.proc->nspace);
		else if (v->type == T_BYTES)
			for (size_t at = 0; at < v->data.bytes.size; at++)
				sum += v->data.bytes.bytes[at];
		else if (v->type == T_ARRAY && v->data.array->type == T_INFO)
			read_infos(v->data.array->array, v->data.array->size);
		else if (v->type == T_ARRAY)
			for (size_t at = 0; at < v->data.array->size; at++)
				sum += strlen(((pmix_proc *)v->data.array->array)[at].nspace);
	}
}

static pmix_status fake_init(void *m, pmix_info *infos, size_t n) { return read_infos(infos, n), SUCCESS; }
static pmix_status fake_add(const char *name, int local, pmix_info *infos, size_t n, op_done done, void *data) {
	read_infos(infos, n);
	sum += strlen(name) + local;
	return OPERATION_SUCCEEDED;
}
static void fake_remove(const char *name, op_done done, void *data) { sum += strlen(name), done(SUCCESS, data); }
static pmix_status fake_client(const pmix_proc *p, uid_t u, gid_t g, void *o, op_done done, void *data) { return OPERATION_SUCCEEDED; }
static pmix_status fake_fork(const pmix_proc *p, char ***env) { return sum += strlen(p->nspace), SUCCESS; }
static pmix_status fake_fetch(const pmix_proc *p, dmodex_done done, void *data) { return done(SUCCESS, "data", 4, data), SUCCESS; }
static pmix_status fake_map(const char *text, char **map) {
	assert(*text != 0); /* libpmix requires it */
	return *map = strdup(text), SUCCESS;
}
static pmix_status fake_event(pmix_status s, const pmix_proc *p, uint8_t range, const pmix_info *infos, size_t n, op_done done, void *data) {
	return read_infos(infos, n), OPERATION_SUCCEEDED;
}
static const char *fake_version(void) { return "PMIx 3.0"; }
static pmix_status fake_pack(const pmix_proc *p, pmix_buffer *b, void *what, int32_t n, uint16_t type) { return read_infos(what, n), SUCCESS; }
static pmix_status fake_unpack(const pmix_proc *p, pmix_buffer *b, void *into, int32_t *n, uint16_t type) {
	for (size_t at = 0; at < b->used; at++)
		sum += b->base[at];
	return b->used % 2 ? FAILED : SUCCESS;
}

static void heard(pmix_status s, const char *bytes, size_t n, void *data, release let, void *what) {
	for (size_t i = 0; i < n; i++)
		sum += bytes[i];
	let(what);
}
static void told_infos(pmix_status s, pmix_info *infos, size_t n, void *data, release let, void *what) {
	read_infos(infos, n);
	free_infos(infos, n); /* the child does not free them, because the library keeps them */
}
static void told_entries(pmix_status s, pmix_pdata *found, size_t n, void *data) {
	for (size_t i = 0; i < n; i++)
		sum += strlen(found[i].key) + strlen(found[i].proc.nspace);
}
static void told_name(pmix_status s, char *name, void *data) { sum += strlen(name); }
static void told(pmix_status s, void *data) { sum += s; }

/* wait_for_answers makes one request of each kind, with the IDs from 1. */
static void wait_for_answers(void) {
	void *const done[] = {[UP_FENCE] = heard, [UP_MODEX] = heard, [UP_LOOKUP] = told_entries, [UP_SPAWN] = told_name, [UP_QUERY] = told_infos,
		[UP_GROUP] = told_infos, [UP_PUBLISH] = told};
	waits = 0, last_id = 0;
	for (int op = 1; op <= UP_GROUP; op++) {
		frame f = ask(op, op < (int)(sizeof done / sizeof *done) && done[op] ? done[op] : (void *)told, NULL);
		free(f.bytes);
	}
}

int main(void) {
	from_daemon = STDIN_FILENO;
	to_daemon = open("/dev/null", O_WRONLY);
	major = 3;
	PMIx_server_init = fake_init, PMIx_server_register_nspace = fake_add, PMIx_server_deregister_nspace = fake_remove;
	PMIx_server_register_client = fake_client, PMIx_server_setup_fork = fake_fork, PMIx_server_dmodex_request = fake_fetch;
	PMIx_generate_regex = fake_map, PMIx_generate_ppn = fake_map, PMIx_Notify_event = fake_event, PMIx_Get_version = fake_version;
	PMIx_Data_pack = fake_pack, PMIx_Data_unpack = fake_unpack;
	for (frame f = {0}; take_frame(&f);) {
		wait_for_answers();
		obey(&f);
		if (write(STDOUT_FILENO, "+", 1) != 1)
			return 1;
	}
	return 0;
}
