// fakecuda's calls of the CUDA driver, by dlopen as real programs do.
#define _GNU_SOURCE
#include "fakecuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1024ULL * 1024)
#define OUT_OF_MEMORY 2

typedef struct {
	int type, handles;
	struct { int type, id; } location;
	void *win32;
	unsigned char flags[8];
} Prop;

static struct {
	int (*init)(unsigned), (*get)(int *, int), (*uuid)(unsigned char *, int), (*total)(size_t *, int);
	int (*retain)(void **, int), (*current)(void *), (*info)(size_t *, size_t *);
	int (*alloc)(unsigned long long *, size_t);
	int (*create)(unsigned long long *, size_t, const Prop *, unsigned long long);
	int (*share)(int *, unsigned long long, int, unsigned long long);
	int (*name)(int, const char **);
} cu;

static void load(void) {
	void *lib = dlopen(own_path("libcuda.so.1"), RTLD_NOW | RTLD_LOCAL);
	if (!lib) die("fakecuda: %s", dlerror());
	const struct { void *slot; const char *name; } wanted[] = {
		{&cu.init, "cuInit"}, {&cu.get, "cuDeviceGet"}, {&cu.uuid, "cuDeviceGetUuid_v2"},
		{&cu.total, "cuDeviceTotalMem_v2"}, {&cu.retain, "cuDevicePrimaryCtxRetain"},
		{&cu.current, "cuCtxSetCurrent"}, {&cu.info, "cuMemGetInfo_v2"}, {&cu.alloc, "cuMemAlloc_v2"},
		{&cu.create, "cuMemCreate"}, {&cu.share, "cuMemExportToShareableHandle"}, {&cu.name, "cuGetErrorName"},
	};
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		void *f = dlsym(lib, wanted[i].name);
		if (!f) die("fakecuda: %s", dlerror());
		memcpy(wanted[i].slot, &f, sizeof f);
	}
}

static void check(int rc, const char *call) {
	const char *name = "?";
	if (rc == 0) return;
	cu.name(rc, &name);
	die("fakecuda: %s: %d %s", call, rc, name ? name : "?");
}

static void run_out(const struct flags *f, int device, unsigned long long bytes) {
	const double gib = 1024.0 * MIB;
	size_t free = 0, total = 0;
	if (f->context) cu.info(&free, &total);
	else cu.total(&total, device);
	if (!f->torch) die("fakecuda: %llu bytes: %d CUDA_ERROR_OUT_OF_MEMORY", bytes, OUT_OF_MEMORY);
	die("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %.2f GiB. GPU %d has a total capacity of "
	    "%.2f GiB of which %.2f GiB is free. Including non-PyTorch memory, this process has 527.00 MiB memory in "
	    "use. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but "
	    "unallocated.",
	    bytes / gib, device, total / gib, free / gib);
}

// piece takes one block; an export's descriptor is returned, otherwise -1.
static int piece(const struct flags *f, int device, unsigned long long bytes) {
	Prop prop = {.type = 1, .handles = f->export, .location = {1, device}};
	unsigned long long handle;
	bool create = f->export || !f->context;
	int rc = create ? cu.create(&handle, bytes, &prop, 0) : cu.alloc(&handle, bytes);
	if (rc == OUT_OF_MEMORY) run_out(f, device, bytes);
	check(rc, create ? "cuMemCreate" : "cuMemAlloc");
	int fd = -1;
	if (f->export) check(cu.share(&fd, handle, 1, 0), "cuMemExportToShareableHandle");
	return fd;
}

static void announce(int device, unsigned long long bytes) {
	unsigned char id[16];
	check(cu.uuid(id, device), "cuDeviceGetUuid");
	say(" gpu=GPU-");
	for (int i = 0; i < 16; i++) say(i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", id[i]);
	say(" bytes=%llu", bytes);
}

static int take_on(const struct flags *f, int ordinal, int *exports, int room) {
	int device, n = 0;
	check(cu.get(&device, ordinal), "cuDeviceGet");
	void *context;
	if (f->context) {
		int rc = cu.retain(&context, device);
		if (rc == OUT_OF_MEMORY) run_out(f, device, 0);
		check(rc, "cuDevicePrimaryCtxRetain");
		check(cu.current(context), "cuCtxSetCurrent");
	}
	unsigned long long bytes = f->mib * MIB;
	for (long i = 0; bytes && i < f->chunks; i++) {
		int fd = piece(f, device, bytes / f->chunks);
		if (fd >= 0 && n < room) exports[n++] = fd;
	}
	announce(device, bytes);
	return n;
}

int take_memory(const struct flags *f, int exports[MAX_EXPORTS]) {
	if (f->list) setenv("FAKECUDA_LIST", f->list, 1);
	load();
	check(cu.init(0), "cuInit");
	int n = 0;
	char *rest = strdup(f->gpus), *ordinal;
	while ((ordinal = strsep(&rest, ","))) n += take_on(f, atoi(ordinal), exports + n, MAX_EXPORTS - n);
	return n;
}
