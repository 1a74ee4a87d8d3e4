// barelook is the least that a look at every GPU can cost, for Bookend's hooks to be measured against: load NVML, start
// it, and with a thread for each GPU read its memory and its three process lists. No check, no shutdown.
// usage: barelook [LIBRARY]
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GPUS = 64, MAX_PROCESSES = 1024 };

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process;
typedef int list(void *, unsigned *, process *);

static struct {
	int (*init)(void), (*count)(unsigned *), (*handle)(unsigned, void **), (*memory)(void *, memory *);
	list *lists[3];
} driver;

static void load(const char *path) {
	const struct { void *slot; const char *name; } wanted[] = {
		{&driver.init, "nvmlInit_v2"}, {&driver.count, "nvmlDeviceGetCount_v2"},
		{&driver.handle, "nvmlDeviceGetHandleByIndex_v2"}, {&driver.memory, "nvmlDeviceGetMemoryInfo_v2"},
		{&driver.lists[0], "nvmlDeviceGetComputeRunningProcesses_v3"},
		{&driver.lists[1], "nvmlDeviceGetGraphicsRunningProcesses_v3"},
		{&driver.lists[2], "nvmlDeviceGetMPSComputeRunningProcesses_v3"},
	};
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "barelook: %s\n", dlerror());
		exit(1);
	}
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		void *f = dlsym(library, wanted[i].name);
		if (!f) {
			fprintf(stderr, "barelook: the driver lacks %s\n", wanted[i].name);
			exit(1);
		}
		memcpy(wanted[i].slot, &f, sizeof f);
	}
}

static void must(int rc, const char *call) {
	if (rc == 0) return;
	fprintf(stderr, "barelook: %s: %d\n", call, rc);
	exit(1);
}

static void *look(void *number) {
	void *gpu;
	memory m = {.version = sizeof m | 2u << 24};
	must(driver.handle((unsigned)(size_t)number, &gpu), "nvmlDeviceGetHandleByIndex_v2");
	must(driver.memory(gpu, &m), "nvmlDeviceGetMemoryInfo_v2");
	for (int i = 0; i < 3; i++) {
		process found[MAX_PROCESSES];
		unsigned n = MAX_PROCESSES;
		must(driver.lists[i](gpu, &n, found), "a process list");
	}
	return NULL;
}

int main(int argc, char **argv) {
	unsigned count;
	pthread_t threads[MAX_GPUS];
	load(argc == 2 ? argv[1] : "libnvidia-ml.so.1");
	must(driver.init(), "nvmlInit_v2");
	must(driver.count(&count), "nvmlDeviceGetCount_v2");
	for (size_t i = 0; i < count && i < MAX_GPUS; i++) must(pthread_create(&threads[i], NULL, look, (void *)i), "pthread_create");
	for (size_t i = 0; i < count && i < MAX_GPUS; i++) must(pthread_join(threads[i], NULL), "pthread_join");
	printf("gpus=%u\n", count);
	return 0;
}
