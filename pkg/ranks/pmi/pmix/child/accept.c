/* Protection of the port on which libpmix listens. libpmix trusts the uid that a client claims,
 * so any user of this node could impersonate a rank. This executable therefore defines accept
 * and accept4, which override those of libc for all libraries: a connection is accepted only if
 * the socket at its other end belongs to this user. */
#define _GNU_SOURCE
#include "child.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

/* The names avoid a conflict with glibc's declarations, whose types are not plain C. */
int guarded_accept(int, struct sockaddr *, socklen_t *) __asm__("accept") __attribute__((visibility("default")));
int guarded_accept4(int, struct sockaddr *, socklen_t *, int) __asm__("accept4") __attribute__((visibility("default")));

/* A socket whose other end is closed. It replaces a refused connection, because an error would
 * end libpmix's listener. In processes other than the server it is -1, and no connection is
 * refused. */
static int closed_socket = -1;

static uid_t own_uid;

typedef union {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
	struct sockaddr_storage room;
} address;

enum { FOUND, ABSENT, UNKNOWN };

static in_port_t port_of(const address *a) {
	return a->any.sa_family == AF_INET ? a->four.sin_port : a->six.sin6_port;
}

/* copy_ip copies an IP address and returns its length in bytes: 4 or 16. */
static size_t copy_ip(void *into, const address *a) {
	if (a->any.sa_family == AF_INET)
		return memcpy(into, &a->four.sin_addr, sizeof a->four.sin_addr), sizeof a->four.sin_addr;
	return memcpy(into, &a->six.sin6_addr, sizeof a->six.sin6_addr), sizeof a->six.sin6_addr;
}

/* kernel_owner requests from the kernel the owner of the socket that is bound to peer and
 * connected to here. A socket that no process has open any more has no inode, and its uid may be
 * 0. */
static int kernel_owner(const address *peer, const address *here, uid_t *uid) {
	int netlink = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (netlink < 0)
		return UNKNOWN;
	struct timeval second = {.tv_sec = 1};
	setsockopt(netlink, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
	struct {
		struct nlmsghdr header;
		struct inet_diag_req_v2 body;
	} request = {
		.header = {.nlmsg_len = sizeof request, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
		.body = {.sdiag_family = peer->any.sa_family, .sdiag_protocol = IPPROTO_TCP, .idiag_states = -1},
	};
	struct inet_diag_sockid *id = &request.body.id;
	copy_ip(id->idiag_src, peer);
	copy_ip(id->idiag_dst, here);
	id->idiag_sport = port_of(peer), id->idiag_dport = port_of(here);
	id->idiag_cookie[0] = id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
	union {
		struct nlmsghdr header;
		char room[8192];
	} answer;
	ssize_t n = -1;
	if (send(netlink, &request, sizeof request, 0) == sizeof request)
		n = recv(netlink, &answer, sizeof answer, 0);
	close(netlink);
	if (n < (ssize_t)NLMSG_LENGTH(sizeof(struct inet_diag_msg)) || answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY)
		return UNKNOWN; /* no such socket, or the kernel does not support the request */
	const struct inet_diag_msg *socket = NLMSG_DATA(&answer.header);
	if (socket->id.idiag_sport != id->idiag_sport || socket->id.idiag_dport != id->idiag_dport || socket->idiag_inode == 0)
		return ABSENT; /* another socket, for example a listener */
	*uid = socket->idiag_uid;
	return FOUND;
}

/* table_owner searches the same socket in /proc/net, which all kernels provide. */
static int table_owner(const address *peer, const address *here, uid_t *uid) {
	char wanted[128] = "";
	const address *both[] = {peer, here};
	for (size_t i = 0; i < 2; i++) {
		uint32_t words[4];
		size_t size = copy_ip(words, both[i]), used;
		for (size_t word = 0; word < size / 4; word++)
			used = strlen(wanted), snprintf(wanted + used, sizeof wanted - used, "%08X", words[word]);
		used = strlen(wanted);
		snprintf(wanted + used, sizeof wanted - used, ":%04X ", ntohs(port_of(both[i])));
	}
	FILE *table = fopen(peer->any.sa_family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6", "re");
	if (table == NULL)
		return ABSENT;
	int found = ABSENT;
	char line[512];
	while (found != FOUND && fgets(line, sizeof line, table) != NULL) {
		const char *at = strchr(line, ':');
		unsigned owner;
		unsigned long inode;
		if (at != NULL && !strncmp(at + 2, wanted, strlen(wanted)) &&
		    sscanf(at + 2 + strlen(wanted), "%*x %*x:%*x %*x:%*x %*x %u %*u %lu", &owner, &inode) == 2 && inode != 0)
			found = FOUND, *uid = owner;
	}
	fclose(table);
	return found;
}

/* is_open reports whether a connection is still established. If it is, after the socket of its
 * peer was found, that socket belongs to this connection and not to a later one with the same
 * port. */
static bool is_open(int connection) {
	struct tcp_info info;
	socklen_t size = sizeof info;
	return getsockopt(connection, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_state == TCP_ESTABLISHED;
}

/* is_own_connection reports whether the other end of a connection belongs to this user. */
bool is_own_connection(int connection) {
	static bool by_kernel; /* the kernel has answered once, so the table is not needed */
	address peer = {0}, here = {0};
	socklen_t size = sizeof peer;
	if (getpeername(connection, &peer.any, &size) != 0)
		return false;
	size = sizeof here;
	if (getsockname(connection, &here.any, &size) != 0 || here.any.sa_family != peer.any.sa_family)
		return false;
	if (here.any.sa_family == AF_UNIX) {
		struct ucred who = {.uid = -1};
		size = sizeof who;
		return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == own_uid;
	}
	if (here.any.sa_family != AF_INET && here.any.sa_family != AF_INET6)
		return false;
	uid_t uid = -1;
	int found = kernel_owner(&peer, &here, &uid);
	if (found == FOUND)
		__atomic_store_n(&by_kernel, true, __ATOMIC_RELAXED);
	if (found == UNKNOWN && !__atomic_load_n(&by_kernel, __ATOMIC_RELAXED))
		found = table_owner(&peer, &here, &uid);
	return found == FOUND && uid == own_uid && is_open(connection);
}

enum { REFUSED_AT_ONCE = 64 };

/* guarded_accept4 implements accept4. It replaces refused connections with closed_socket. */
int guarded_accept4(int listener, struct sockaddr *from, socklen_t *size, int flags) {
	socklen_t room = size ? *size : 0;
	for (int refused = 0;; refused++) {
		if (size != NULL)
			*size = room;
		int connection = syscall(SYS_accept4, listener, from, size, flags);
		if (connection < 0 || closed_socket < 0 || is_own_connection(connection))
			return connection;
		if (dup3(closed_socket, connection, flags & SOCK_CLOEXEC) < 0) {
			close(connection);
			errno = ECONNABORTED;
			return -1;
		}
		/* The next connection may be acceptable, so a refused one is returned only if no other is
		 * pending, or after many refused ones. */
		struct pollfd next = {.fd = listener, .events = POLLIN};
		if (refused == REFUSED_AT_ONCE || poll(&next, 1, 0) <= 0)
			return connection;
		close(connection);
	}
}

int guarded_accept(int listener, struct sockaddr *from, socklen_t *size) { return guarded_accept4(listener, from, size, 0); }

/* is_mapped reports whether the kernel can distinguish this user from others: in a user
 * namespace without a mapping, all users have the same number. */
static bool is_mapped(void) {
	unsigned inside, count;
	FILE *map = fopen("/proc/self/uid_map", "re");
	bool mapped = map == NULL;
	while (!mapped && fscanf(map, "%u %*u %u", &inside, &count) == 2)
		mapped = own_uid - inside < count && own_uid >= inside;
	if (map != NULL)
		fclose(map);
	return mapped;
}

const char *guard_port(void) {
	int pair[2];
	own_uid = geteuid();
	if (dlsym(RTLD_DEFAULT, "accept") != (void *)guarded_accept || dlsym(RTLD_DEFAULT, "accept4") != (void *)guarded_accept4)
		return "this program does not export its own accept: build it with make build";
	if (!is_mapped())
		return "this user namespace does not map this user, so that connections of other users cannot be detected";
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		return strerror(errno);
	close(pair[1]);
	closed_socket = pair[0];
	return NULL;
}
