// Memory handed from process to process as descriptors (SCM_RIGHTS).
#define _GNU_SOURCE
#include "fakecuda.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_un address(const char *path) {
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof a.sun_path) die("fakecuda: socket path is too long: %s", path);
	strcpy(a.sun_path, path);
	return a;
}

int listen_at(const char *path) {
	struct sockaddr_un a = address(path);
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s < 0 || bind(s, (struct sockaddr *)&a, sizeof a) || listen(s, 1))
		die("fakecuda: listen at %s: %s", path, strerror(errno));
	return s;
}

union control {
	char bytes[CMSG_SPACE((MAX_EXPORTS + 1) * sizeof(int))];
	struct cmsghdr align;
};

// The real driver's exported descriptors are opens of /dev/nvidiactl; the one sent along stands for that.
void send_memory(const char *path, const int *fds, int n) {
	int all[MAX_EXPORTS + 1];
	memcpy(all, fds, n * sizeof *fds);
	all[n] = open(own_path("dev/nvidiactl"), O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (all[n] >= 0) n++;
	struct sockaddr_un a = address(path);
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s < 0 || connect(s, (struct sockaddr *)&a, sizeof a)) die("fakecuda: connect %s: %s", path, strerror(errno));
	char byte = 'm';
	union control control = {0};
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control.bytes,
	                   .msg_controllen = CMSG_SPACE(n * sizeof(int))};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(n * sizeof(int))};
	memcpy(CMSG_DATA(c), all, n * sizeof(int));
	// The answer says that the other end holds them.
	if (sendmsg(s, &m, 0) != 1 || read(s, &byte, 1) != 1) die("fakecuda: send memory: %s", strerror(errno));
	close(s);
	for (int i = 0; i < n; i++) close(all[i]);
}

void receive_memory(int listener) {
	int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	char byte;
	union control control;
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control.bytes,
	                   .msg_controllen = sizeof control.bytes};
	if (s < 0 || recvmsg(s, &m, MSG_CMSG_CLOEXEC) != 1 || write(s, &byte, 1) != 1)
		die("fakecuda: receive memory: %s", strerror(errno));
	close(s);
	close(listener);
}
