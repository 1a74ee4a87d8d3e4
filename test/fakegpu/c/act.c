// Misbehaviour on order.
#define _GNU_SOURCE
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void hang(void) {
	for (;;) pause();
}

// Ignores all that can be ignored, a process's own alarm() included, as a thread stuck in the kernel does.
static void hang_hard(void) {
	for (int s = 1; s < NSIG; s++) signal(s, SIG_IGN);
	hang();
}

// A frozen freezer cgroup (v1) puts the whole process into state D, where even SIGKILL waits until it is thawed:
// the nearest userland gets to a thread stuck on a driver lock. Its name is the world's, for the harness to thaw.
static void freeze(const struct world *w) {
	const char *group = world_text(w, ANY_GPU, "freezer", "");
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/freezer.state", group);
	FILE *f = *group && (mkdir(group, 0755) == 0 || errno == EEXIST) ? fopen(path, "w") : NULL;
	if (!f || fputs("FROZEN", f) < 0 || fclose(f)) {
		fprintf(stderr, "fakegpu: freeze %s: %m\n", path);
		_exit(97);
	}
	snprintf(path, sizeof path, "%s/cgroup.procs", group);
	f = fopen(path, "w");
	if (!f || fputs("0", f) < 0 || fclose(f)) {
		fprintf(stderr, "fakegpu: freeze %s: %m\n", path);
		_exit(97);
	}
}

void world_nap(long long ms) {
	struct timespec left = {ms / 1000, ms % 1000 * 1000000}; // a signal handler ends a sleep early
	while (nanosleep(&left, &left) && errno == EINTR) {}
}

// meet waits until as many calls of this process have come to a rule of this kind: only calls that are made at the same
// time get beyond it.
static void meet(long calls) {
	static atomic_int come;
	for (atomic_fetch_add(&come, 1); atomic_load(&come) < calls;) world_nap(1);
}

// note leaves word of this process, which has come to a rule of this kind, under its PID.
static void note(void) {
	char name[32], path[PATH_MAX];
	snprintf(name, sizeof name, "noted/%d", (int)getpid());
	int fd = open(world_path(path, name), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	if (fd >= 0) close(fd);
}

// obey runs one rule: ACTION [ARGUMENT] [after N] [times M].
static int obey(const struct world *w, const char *rule, int call) {
	char action[16] = "", word[16];
	long arg = 0, after = 0, times = 0;
	int used = 0;
	if (sscanf(rule, "%15s %n", action, &used) < 1) return -1;
	const char *p = rule + used;
	char *end;
	arg = strtol(p, &end, 0);
	long n;
	for (p = end; sscanf(p, " %15s %ld%n", word, &n, &used) == 2; p += used) {
		if (!strcmp(word, "after")) after = n;
		if (!strcmp(word, "times")) times = n;
	}
	if (call <= after || (times && call > after + times)) return -1;
	if (!strcmp(action, "rc")) return (int)arg;
	if (!strcmp(action, "sleep")) world_nap(arg);
	if (!strcmp(action, "meet")) meet(arg);
	if (!strcmp(action, "note")) note();
	if (!strcmp(action, "hang")) hang();
	if (!strcmp(action, "hang-hard")) hang_hard();
	if (!strcmp(action, "freeze")) freeze(w);
	if (!strcmp(action, "exit")) _exit((int)arg);
	if (!strcmp(action, "crash")) *(volatile int *)NULL = 0;
	return -1;
}

int world_act(const struct world *w, const char *function, int gpu, calls_t calls) {
	int call = atomic_fetch_add(&calls[gpu + 1], 1) + 1;
	char key[128];
	const char *rule = NULL;
	if (gpu != ANY_GPU) {
		snprintf(key, sizeof key, "on.%s.gpu%d", function, gpu);
		rule = world_text(w, ANY_GPU, key, NULL);
	}
	if (!rule) {
		snprintf(key, sizeof key, "on.%s", function);
		rule = world_text(w, ANY_GPU, key, NULL);
	}
	if (!rule && gpu != ANY_GPU) {
		snprintf(key, sizeof key, "on.any.gpu%d", gpu);
		rule = world_text(w, ANY_GPU, key, NULL);
	}
	return rule ? obey(w, rule, call) : -1;
}
