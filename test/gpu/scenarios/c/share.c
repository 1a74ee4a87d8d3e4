// Memory handed from process to process: as descriptors (SCM_RIGHTS) and as CUDA IPC handles.
#define _GNU_SOURCE
#include "job.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int unix_socket(const char *path, struct sockaddr_un *a) {
	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof a->sun_path) die("socket path is too long: %s", path);
	strcpy(a->sun_path, path);
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s < 0) die("make a socket: %s", strerror(errno));
	return s;
}

int listen_at(const char *path) {
	struct sockaddr_un a;
	int s = unix_socket(path, &a);
	if (bind(s, (struct sockaddr *)&a, sizeof a) || listen(s, 1)) die("listen at %s: %s", path, strerror(errno));
	return s;
}

static int take_caller(int listener) {
	int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (s < 0) die("accept: %s", strerror(errno));
	close(listener);
	return s;
}

// Descriptors

union control {
	char bytes[CMSG_SPACE((MAX_EXPORTS + 1) * sizeof(int))];
	struct cmsghdr align;
};

static void send_descriptors(int s, const int *fds, int n) {
	char byte = 'm';
	union control control = {0};
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control.bytes,
	                   .msg_controllen = CMSG_SPACE(n * sizeof(int))};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(n * sizeof(int))};
	memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	if (sendmsg(s, &m, 0) != 1 || read(s, &byte, 1) != 1) die("send memory: %s", strerror(errno));
}

void send_memory(const char *path, const int *fds, int n) {
	int all[MAX_EXPORTS + 1];
	memcpy(all, fds, n * sizeof *fds);
	all[n] = vendor_companion();
	if (all[n] >= 0) n++;
	struct sockaddr_un a;
	int s = unix_socket(path, &a);
	if (connect(s, (struct sockaddr *)&a, sizeof a)) die("connect to %s: %s", path, strerror(errno));
	send_descriptors(s, all, n);
	close(s);
	for (int i = 0; i < n; i++) close(all[i]);
}

void receive_memory(int listener) {
	int s = take_caller(listener);
	char byte;
	union control control;
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control.bytes,
	                   .msg_controllen = sizeof control.bytes};
	if (recvmsg(s, &m, MSG_CMSG_CLOEXEC) != 1 || write(s, &byte, 1) != 1) die("receive memory: %s", strerror(errno));
	close(s);
}

// Handles

struct offer {
	unsigned long long bytes;
	unsigned char handle[IPC_HANDLE];
};

void offer_shared(int listener, const unsigned char handle[IPC_HANDLE], unsigned long long bytes) {
	struct offer o = {.bytes = bytes};
	char mapped;
	memcpy(o.handle, handle, IPC_HANDLE);
	int s = take_caller(listener);
	if (write(s, &o, sizeof o) != sizeof o || read(s, &mapped, 1) != 1) die("no importer has mapped it: %s", strerror(errno));
	close(s);
}

// The exporter may start after the importer: for 30 s there need be nobody at the socket.
static int call(const char *path) {
	for (int tries = 0; tries < 600; tries++) {
		struct sockaddr_un a;
		int s = unix_socket(path, &a);
		if (connect(s, (struct sockaddr *)&a, sizeof a) == 0) return s;
		close(s);
		nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
	}
	die("connect to %s: %s", path, strerror(errno));
}

int fetch_shared(const char *path, unsigned char handle[IPC_HANDLE], unsigned long long *bytes) {
	struct offer o;
	int s = call(path);
	if (recv(s, &o, sizeof o, MSG_WAITALL) != sizeof o) die("no handle from %s: %s", path, strerror(errno));
	memcpy(handle, o.handle, IPC_HANDLE);
	*bytes = o.bytes;
	return s;
}

void answer_shared(int connection) {
	// The exporter may have been killed once this process had said that it is ready.
	if (write(connection, "m", 1) != 1 && errno != EPIPE && errno != ECONNRESET) die("answer the exporter: %s", strerror(errno));
	close(connection);
}
