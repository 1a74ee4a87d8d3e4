// train plays the user's CUDA program on a real GPU: it takes memory and keeps it. It prints one line once it has it:
//
//   ready pid=PID bytes=N
//
// usage: train alloc --mib N [--sleep S] [--orphan]    --orphan: leave the session first; the command returns when
//                                                      the orphan is ready. Without --sleep: until killed.
//        train check                                   do NVIDIA's two libraries answer?
//
// The driver is called through prototypes of our own: neither CUDA's headers nor its toolkit are needed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int report = 1; // where the ready line goes

static void die(const char *what, const char *why) {
	dprintf(report == 1 ? 2 : report, "train: %s: %s\n", what, why);
	_exit(1);
}

static void *load(const char *name) {
	void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!lib) die(name, dlerror());
	return lib;
}

// find stores the address of a function, of which ISO C knows no conversion from an object's.
static void find(void *lib, const char *name, void *slot) {
	void *address = dlsym(lib, name);
	if (!address) die(name, dlerror());
	memcpy(slot, &address, sizeof address);
}

static void succeed(int rc, const char *call) {
	char code[32];
	snprintf(code, sizeof code, "error %d", rc);
	if (rc) die(call, code);
}

static void check(void) {
	int (*init)(void), (*cuda)(unsigned);
	find(load("libnvidia-ml.so.1"), "nvmlInit_v2", &init);
	succeed(init(), "nvmlInit");
	find(load("libcuda.so.1"), "cuInit", &cuda);
	succeed(cuda(0), "cuInit");
}

static void take(unsigned long long bytes) {
	int (*init)(unsigned), (*get)(int *, int), (*retain)(void **, int), (*current)(void *);
	int (*alloc)(unsigned long long *, size_t);
	void *lib = load("libcuda.so.1"), *context;
	unsigned long long address;
	int device;
	find(lib, "cuInit", &init);
	find(lib, "cuDeviceGet", &get);
	find(lib, "cuDevicePrimaryCtxRetain", &retain);
	find(lib, "cuCtxSetCurrent", &current);
	find(lib, "cuMemAlloc_v2", &alloc);
	succeed(init(0), "cuInit");
	succeed(get(&device, 0), "cuDeviceGet");
	succeed(retain(&context, device), "cuDevicePrimaryCtxRetain");
	succeed(current(context), "cuCtxSetCurrent");
	succeed(alloc(&address, bytes), "cuMemAlloc");
}

// leave_session returns in a process that no longer belongs to the caller's session. The caller stays until that
// one has reported, passes its line on and ends.
static void leave_session(void) {
	int p[2];
	if (pipe2(p, O_CLOEXEC)) die("pipe", strerror(errno));
	if (fork() == 0) {
		setsid();
		if (fork()) _exit(0);
		report = p[1];
		int null = open("/dev/null", O_RDWR);
		for (int fd = 0; fd < 3; fd++) dup2(null, fd);
		return;
	}
	close(p[1]);
	char text[256];
	size_t n = 0;
	for (ssize_t got; n < sizeof text && (got = read(p[0], text + n, sizeof text - n)) > 0; ) n += got;
	int ready = n > 6 && !memcmp(text, "ready ", 6);
	_exit(write(ready ? 1 : 2, text, n) == (ssize_t)n && ready ? 0 : 1);
}

static void stay(double s) {
	struct timespec left = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
	if (s < 0) for (;;) pause();
	while (nanosleep(&left, &left) && errno == EINTR) {}
}

int main(int argc, char **argv) {
	const struct option options[] = {{"mib", 1, 0, 'm'}, {"sleep", 1, 0, 's'}, {"orphan", 0, 0, 'o'}, {0, 0, 0, 0}};
	unsigned long long mib = 0;
	double sleep = -1;
	int orphan = 0;
	for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1; ) {
		if (o == 'm') mib = strtoull(optarg, NULL, 10);
		else if (o == 's') sleep = atof(optarg);
		else if (o == 'o') orphan = 1;
		else return 2;
	}
	const char *verb = optind + 1 == argc ? argv[optind] : "";
	if (!strcmp(verb, "check")) {
		check();
		return 0;
	}
	if (strcmp(verb, "alloc") || !mib) {
		fputs("usage: train alloc --mib N [--sleep S] [--orphan] | train check\n", stderr);
		return 2;
	}
	if (orphan) leave_session();
	take(mib << 20);
	dprintf(report, "ready pid=%d bytes=%llu\n", getpid(), mib << 20);
	if (report != 1) close(report);
	stay(sleep);
	return 0;
}
