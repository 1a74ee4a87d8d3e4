// bare is the least that a hook's questions to the driver can cost, for Bookend's hooks to be measured against. No check,
// no search, no shutdown.
//	bare look [LIBRARY]         start NVML, and with a thread for each GPU read its memory and its three process lists
//	bare probe MIB [LIBRARY]    start CUDA, take a block on every visible GPU and give it back
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
} nvml;

// Pinned memory of one GPU.
typedef struct {
	int type, handle_types;
	struct { int type, id; } location;
	void *windows;
	unsigned char flags[8];
} properties;

static struct {
	int (*init)(unsigned), (*count)(int *);
	int (*create)(unsigned long long *, size_t, const properties *, unsigned long long), (*release)(unsigned long long);
} cuda;

typedef struct { void *slot; const char *name; } wanted;

static void load(const char *path, const wanted *functions, size_t count) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "bare: %s\n", dlerror());
		exit(1);
	}
	for (size_t i = 0; i < count; i++) {
		void *f = dlsym(library, functions[i].name);
		if (!f) {
			fprintf(stderr, "bare: the driver lacks %s\n", functions[i].name);
			exit(1);
		}
		memcpy(functions[i].slot, &f, sizeof f);
	}
}

static void must(int rc, const char *call) {
	if (rc == 0) return;
	fprintf(stderr, "bare: %s: %d\n", call, rc);
	exit(1);
}

static void *look_at(void *number) {
	void *gpu;
	memory m = {.version = sizeof m | 2u << 24};
	must(nvml.handle((unsigned)(size_t)number, &gpu), "nvmlDeviceGetHandleByIndex_v2");
	must(nvml.memory(gpu, &m), "nvmlDeviceGetMemoryInfo_v2");
	for (int i = 0; i < 3; i++) {
		process found[MAX_PROCESSES];
		unsigned n = MAX_PROCESSES;
		must(nvml.lists[i](gpu, &n, found), "a process list");
	}
	return NULL;
}

static void look(const char *library) {
	const wanted functions[] = {
		{&nvml.init, "nvmlInit_v2"}, {&nvml.count, "nvmlDeviceGetCount_v2"},
		{&nvml.handle, "nvmlDeviceGetHandleByIndex_v2"}, {&nvml.memory, "nvmlDeviceGetMemoryInfo_v2"},
		{&nvml.lists[0], "nvmlDeviceGetComputeRunningProcesses_v3"},
		{&nvml.lists[1], "nvmlDeviceGetGraphicsRunningProcesses_v3"},
		{&nvml.lists[2], "nvmlDeviceGetMPSComputeRunningProcesses_v3"},
	};
	unsigned count;
	pthread_t threads[MAX_GPUS];
	load(library, functions, sizeof functions / sizeof *functions);
	must(nvml.init(), "nvmlInit_v2");
	must(nvml.count(&count), "nvmlDeviceGetCount_v2");
	for (size_t i = 0; i < count && i < MAX_GPUS; i++) must(pthread_create(&threads[i], NULL, look_at, (void *)i), "pthread_create");
	for (size_t i = 0; i < count && i < MAX_GPUS; i++) must(pthread_join(threads[i], NULL), "pthread_join");
	printf("gpus=%u\n", count);
}

static void probe(unsigned long long mib, const char *library) {
	const wanted functions[] = {
		{&cuda.init, "cuInit"}, {&cuda.count, "cuDeviceGetCount"},
		{&cuda.create, "cuMemCreate"}, {&cuda.release, "cuMemRelease"},
	};
	unsigned long long handle;
	int gpus;
	load(library, functions, sizeof functions / sizeof *functions);
	must(cuda.init(0), "cuInit");
	must(cuda.count(&gpus), "cuDeviceGetCount");
	for (int gpu = 0; gpu < gpus; gpu++) {
		properties p = {.type = 1, .location = {.type = 1, .id = gpu}};
		must(cuda.create(&handle, mib << 20, &p, 0), "cuMemCreate");
		must(cuda.release(handle), "cuMemRelease");
	}
	printf("gpus=%d mib=%llu\n", gpus, mib);
}

int main(int argc, char **argv) {
	char *end = "";
	unsigned long long mib = argc > 2 ? strtoull(argv[2], &end, 10) : 0;
	if (argc > 1 && !strcmp(argv[1], "look")) {
		look(argc > 2 ? argv[2] : "libnvidia-ml.so.1");
	} else if (argc > 2 && !strcmp(argv[1], "probe") && mib && !*end) {
		probe(mib, argc > 3 ? argv[3] : "libcuda.so.1");
	} else {
		fprintf(stderr, "usage: bare look [LIBRARY] | bare probe MIB [LIBRARY]\n");
		return 64;
	}
	return 0;
}
