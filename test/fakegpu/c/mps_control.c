// nvidia-cuda-mps-control of the fake vendor. As a daemon it has its cards' nodes open, four times each, and no
// memory; it starts nvidia-cuda-mps-server for the first client that comes, and both live until they are told.
//
// usage: nvidia-cuda-mps-control -d      start the daemon
//        nvidia-cuda-mps-control <LINES  quit, get_server_list
// CUDA_MPS_PIPE_DIRECTORY, which must exist, gets the daemon's socket and nvidia-cuda-mps-control.pid.
#define _GNU_SOURCE
#include "cuda.h"
#include "mps.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CARD_NODES 4 // measured

int cuInit(unsigned flags);

static const char *folder;
static pid_t server;

static void fail(const char *what) {
	fprintf(stderr, "nvidia-cuda-mps-control: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void open_nodes(void) {
	struct world w;
	unsetenv("CUDA_MPS_PIPE_DIRECTORY"); // neither this nor the server is anybody's client
	if (cuInit(0)) fail("no card");
	world_load(&w);
	for (int i = 0; i < cuda_visible_count; i++) {
		char node[32];
		snprintf(node, sizeof node, "nvidia%lld", world_num(&w, cuda_visible[i], "minor", cuda_visible[i]));
		for (int n = 1; n < CARD_NODES; n++) cuda_open_node(node); // the first is cuInit's
	}
}

// The server says when it has its memory.
static bool start_server(void) {
	int p[2];
	char path[PATH_MAX], word;
	if (server || pipe2(p, O_CLOEXEC)) return server;
	if ((server = fork()) == 0) {
		dup2(p[1], 1);
		execl(world_path(path, "nvidia-cuda-mps-server"), "nvidia-cuda-mps-server", NULL);
		_exit(127);
	}
	close(p[1]);
	bool ready = server > 0 && read(p[0], &word, 1) == 1;
	close(p[0]);
	if (!ready) server = 0;
	return ready;
}

static void quit(int s) {
	char path[PATH_MAX];
	if (server && kill(server, SIGTERM) == 0) waitpid(server, NULL, 0);
	snprintf(path, sizeof path, "%s/control", folder);
	unlink(path);
	snprintf(path, sizeof path, "%s/nvidia-cuda-mps-control.pid", folder);
	unlink(path);
	close(s);
	exit(0);
}

static void serve(int s) {
	char line[256] = "";
	ssize_t n = read(s, line, sizeof line - 1);
	line[n > 0 ? strcspn(line, "\n") : 0] = 0;
	if (!strcmp(line, "quit")) quit(s);
	if (!strcmp(line, MPS_JOIN)) dprintf(s, "%s\n", start_server() ? MPS_JOINED : "refused");
	else if (strcmp(line, "get_server_list")) dprintf(s, "Unknown command\n");
	else if (server) dprintf(s, "%d\n", server);
	close(s);
}

static int listen_in_folder(void) {
	struct sockaddr_un a;
	char answer[64];
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	errno = ENAMETOOLONG;
	if (s < 0 || !mps_address(folder, &a)) fail(folder);
	if (mps_ask(folder, "get_server_list", answer, sizeof answer)) {
		fputs("An instance of this daemon is already running\n", stderr);
		exit(1);
	}
	unlink(a.sun_path);
	if (bind(s, (struct sockaddr *)&a, sizeof a) || listen(s, 16)) fail(a.sun_path);
	return s;
}

static void write_pid(void) {
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/nvidia-cuda-mps-control.pid", folder);
	FILE *f = fopen(path, "we");
	if (!f || fprintf(f, "%d\n", getpid()) < 0 || fclose(f)) fail(path);
}

static int be_daemon(void) {
	int p[2], listener = listen_in_folder();
	char word;
	if (pipe2(p, O_CLOEXEC)) fail("pipe");
	if (fork()) {
		close(p[1]);
		return read(p[0], &word, 1) == 1 ? 0 : 1;
	}
	setsid();
	signal(SIGPIPE, SIG_IGN);
	open_nodes();
	write_pid();
	int null = open("/dev/null", O_RDWR);
	for (int fd = 0; fd < 3; fd++) dup2(null, fd);
	if (write(p[1], "r", 1) != 1) exit(1);
	close(p[0]);
	close(p[1]);
	for (;;) {
		int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (s >= 0) serve(s);
	}
}

static int pass_on(void) {
	char line[256], answer[256];
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (!mps_ask(folder, line, answer, sizeof answer)) {
			fputs("Cannot find MPS control daemon process\n", stderr);
			return 1;
		}
		if (*answer) puts(answer);
	}
	return 0;
}

int main(int argc, char **argv) {
	folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
	if (!folder) {
		fputs("nvidia-cuda-mps-control: this fake one wants CUDA_MPS_PIPE_DIRECTORY\n", stderr);
		return 1;
	}
	folder = strdup(folder);
	return argc == 2 && !strcmp(argv[1], "-d") ? be_daemon() : pass_on();
}
