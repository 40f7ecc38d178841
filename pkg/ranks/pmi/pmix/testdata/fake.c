/* A libpmix with the fault FAULT. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOTHING, OLD, REFUSES, ABORTS, EXITS, HANGS, CRASHES_LATER, PRINTS, LISTENS, LOGS };

#if FAULT != NOTHING
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>

#include "../child/abi.h"

static volatile int log_status = 1;

static void log_done(int status, void *data) {
	(void)data;
	log_status = status;
}

/* log_too_much asks the server to log a text that is too long to be sent, and waits for the answer. */
static void log_too_much(void **module) {
	char *text = calloc(1, (256 << 20) + 1);
	pmix_proc self = {0};
	pmix_info words = {.key = "pmix.log.stderr", .value = {.type = T_STRING, .data.string = text}};
	memset(text, 'x', 256 << 20);
	((void (*)(const pmix_proc *, const pmix_info *, size_t, const pmix_info *, size_t, void (*)(int, void *), void *))module[17])(
	    &self, &words, 1, NULL, 0, log_done, NULL);
	for (int i = 0; i < 1000 && log_status == 1; i++)
		usleep(10000);
	fprintf(stderr, "logged: %d\n", log_status);
	exit(0);
}

/* As libpmix does, it ends its listener at the first connection that it cannot accept, and is
 * finished with each connection before it takes the next. */
static void *greet(void *listener) {
	for (;;) {
		int connection = accept((int)(intptr_t)listener, NULL, NULL);
		if (connection < 0)
			return NULL;
		char hello[6] = "";
		if (read(connection, hello, 5) == 5 && !strcmp(hello, "hello") && write(connection, "welcome", 7) != 7)
			return NULL;
		close(connection);
	}
}

static int listen_now(void) {
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof here;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	pthread_t thread;
	if (bind(listener, (void *)&here, size) || listen(listener, 128) || getsockname(listener, (void *)&here, &size) ||
	    pthread_create(&thread, NULL, greet, (void *)(intptr_t)listener))
		return -1;
	fprintf(stderr, "port %d\n", ntohs(here.sin_port));
	return 0;
}

const char *PMIx_Get_version(void) { return FAULT == OLD ? "PMIx 2.2.5, of old" : "PMIx 4.9.9, a fake"; }

int PMIx_server_init(void *module, void *infos, size_t n) {
	(void)module, (void)infos, (void)n;
	switch (FAULT) {
	case REFUSES: return -31;
	case ABORTS: fprintf(stderr, "it can't be\n"); abort();
	case EXITS: fprintf(stderr, "it won't be\n"); exit(0);
	case HANGS: for (;;) pause();
	case LISTENS: return listen_now();
	case LOGS: log_too_much(module);
	case PRINTS: printf("page after page\n"); fflush(stdout);
	}
	return 0;
}

int PMIx_server_finalize(void) { return 0; }
int PMIx_server_register_nspace(const char *name, int local, void *infos, size_t n, void *done, void *data) {
	(void)name, (void)local, (void)infos, (void)n, (void)done, (void)data;
	if (FAULT == CRASHES_LATER) {
		fprintf(stderr, "oh no\n");
		*(volatile int *)8 = 1;
	}
	return -157;
}
void PMIx_server_deregister_nspace(const char *name, void (*done)(int, void *), void *data) { (void)name, done(0, data); }
int PMIx_server_register_client(const void *who, unsigned user, unsigned group, void *object, void *done, void *data) {
	(void)who, (void)user, (void)group, (void)object, (void)done, (void)data;
	return -157;
}
int PMIx_server_setup_fork(const void *who, char ***env) { (void)who, (void)env; return 0; }
int PMIx_server_dmodex_request(const void *who, void *done, void *data) { (void)who, (void)done, (void)data; return 0; } /* never answers */
int PMIx_generate_regex(const char *list, char **regex) { *regex = strdup(list); return 0; }
int PMIx_generate_ppn(const char *list, char **regex) {
	if (*list == 0) /* as libpmix does */
		*(volatile int *)8 = 1;
	*regex = strdup(list);
	return 0;
}
int PMIx_Notify_event(int code, const void *source, uint8_t range, const void *infos, size_t n, void *done, void *data) {
	(void)code, (void)source, (void)range, (void)infos, (void)n, (void)done, (void)data;
	return -157;
}
int PMIx_Data_pack(const void *to, void *buffer, void *what, int32_t n, uint16_t type) { (void)to, (void)buffer, (void)what, (void)n, (void)type; return 0; }
int PMIx_Data_unpack(const void *from, void *buffer, void *into, int32_t *n, uint16_t type) { (void)from, (void)buffer, (void)into, (void)type; *n = 0; return 0; }
#endif
