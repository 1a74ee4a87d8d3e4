// Asking the fake MPS daemon.
#define _GNU_SOURCE
#include "cuda.h"
#include "mps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool mps_address(const char *folder, struct sockaddr_un *a) {
	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	return snprintf(a->sun_path, sizeof a->sun_path, "%s/control", folder) < (int)sizeof a->sun_path;
}

bool mps_ask(const char *folder, const char *line, char *answer, size_t size) {
	struct sockaddr_un a;
	size_t n = 0;
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool sent = s >= 0 && mps_address(folder, &a) && connect(s, (struct sockaddr *)&a, sizeof a) == 0 &&
	            dprintf(s, "%s\n", line) > 0;
	for (ssize_t got; sent && n < size - 1 && (got = read(s, answer + n, size - 1 - n)) > 0; ) n += got;
	if (n > 0 && answer[n - 1] == '\n') n--;
	answer[n] = 0;
	if (s >= 0) close(s);
	return sent;
}

// A process whose environment names an MPS daemon's folder computes through that daemon's server. The daemon's default
// folder is left alone: it is the whole machine's, not this world's.
bool cuda_join_mps(void) {
	char answer[64];
	const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
	return folder && mps_ask(folder, MPS_JOIN, answer, sizeof answer) && !strcmp(answer, MPS_JOINED);
}
