// Leaving a session, forking, and staying alive.
#define _GNU_SOURCE
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void quiet(void) {
	int null = open("/dev/null", O_RDWR);
	for (int fd = 0; fd < 3; fd++) dup2(null, fd);
	if (null > 2) close(null);
}

// listen_to returns all that the writers of a pipe report.
static const char *listen_to(int *p) {
	static char text[4096];
	size_t n = 0;
	close(p[1]);
	for (ssize_t got; n < sizeof text - 1 && (got = read(p[0], text + n, sizeof text - 1 - n)) > 0; ) n += got;
	text[n] = 0;
	close(p[0]);
	return text;
}

static void open_pipe(int *p) {
	if (pipe2(p, O_CLOEXEC)) die("pipe: %s", strerror(errno));
}

static pid_t split(void) {
	pid_t pid = fork();
	if (pid < 0) die("fork: %s", strerror(errno));
	if (pid == 0) vendor_mortal(); // an alarm is not inherited
	return pid;
}

// The command stays until the orphan has reported, passes its line on and ends with its verdict.
void leave_session(void) {
	int p[2];
	open_pipe(p);
	if (split() == 0) {
		setsid();
		if (split()) _exit(0);
		close(p[0]);
		report_to(p[1]);
		quiet();
		return;
	}
	const char *text = listen_to(p);
	bool ready = !strncmp(text, "ready ", 6);
	size_t n = strlen(text);
	_exit(write(ready ? 1 : 2, text, n) == (ssize_t)n && ready ? 0 : 1);
}

// Children

int hold_in_child(void) {
	pid_t parent = getpid(), pid = split();
	if (pid > 0) {
		kill(parent, SIGKILL);
		for (;;) pause();
	}
	setsid();
	while (getppid() == parent) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	say(" child=%d holder=%d", getpid(), getpid());
	return parent;
}

// A worker learns of its parent's end by the end of a pipe, and lives on for a while.
static void work(const int *alive) {
	char c;
	setsid();
	quiet();
	report_to(-1);
	close(alive[1]);
	while (read(alive[0], &c, 1) < 0 && errno == EINTR) {}
	stay(flags.workers_life);
	_exit(0);
}

void start_workers(void) {
	int alive[2];
	open_pipe(alive);
	for (long i = 0; i < flags.workers; i++) {
		pid_t pid = split();
		if (pid == 0) work(alive);
		say(" child=%d", pid);
	}
}

// Staying

void stay(double seconds) {
	struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
	if (seconds < 0) for (;;) pause();
	while (nanosleep(&left, &left) && errno == EINTR) {}
}

void await_file(const char *path) {
	while (access(path, F_OK)) nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

double clock_ms(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void *outlive_leader(void *unused) {
	stay(flags.sleep);
	_exit(0);
	return unused;
}

void live_on(void) {
	if (flags.stop) raise(SIGSTOP);
	if (flags.vfork && vfork() == 0) for (;;) pause();
	pthread_t other;
	if (flags.leader_exits && pthread_create(&other, NULL, outlive_leader, NULL) == 0) pthread_exit(NULL);
	stay(flags.sleep);
}
