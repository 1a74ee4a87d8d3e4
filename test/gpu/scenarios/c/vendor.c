// Where the driver is. The fake vendor's lies in the folder of this program.
#define _GNU_SOURCE
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef FAKE_VENDOR

static const char *own_path(const char *name) {
	static char path[2 * PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
	if (n < 0) die("where am I: %s", strerror(errno));
	path[n] = 0;
	strcpy(strrchr(path, '/') + 1, name);
	return path;
}

const char *vendor_library(void) { return own_path("libcuda.so.1"); }
const char *vendor_nvml(void) { return own_path("libnvidia-ml.so.1"); }

bool vendor_cramped(void) {
	struct rlimit limit;
	return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

const char *vendor_node(const char *name) {
	static char node[64];
	snprintf(node, sizeof node, "dev/%s", name);
	return own_path(node);
}

// The real driver's exported descriptors are opens of /dev/nvidiactl; this one stands for that.
int vendor_companion(void) { return open(vendor_node("nvidiactl"), O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC); }

void vendor_pace(void) { usleep(1000); }
void vendor_mortal(void) {}

#else

#define LIFETIME 600 // seconds

const char *vendor_library(void) { return "libcuda.so.1"; }
const char *vendor_nvml(void) { return "libnvidia-ml.so.1"; }
bool vendor_cramped(void) { return false; }

const char *vendor_node(const char *name) {
	static char node[64];
	snprintf(node, sizeof node, "/dev/%s", name);
	return node;
}

int vendor_companion(void) { return -1; }
void vendor_pace(void) {}

static void give_up(int signal) { _exit(128 + signal); }

// The first process of a PID namespace gets no signal that it has no handler for.
void vendor_mortal(void) {
	signal(SIGALRM, give_up);
	alarm(LIFETIME);
}

#endif
