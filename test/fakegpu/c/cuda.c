// libcuda.so.1 of the fake vendor: the driver API as far as a memory probe or a small CUDA program needs it.
// Memory taken here is a ledger file in the world's alloc/ folder, held by an open descriptor (see world.h).
// This file: start, devices and the names of its codes.
#define _GNU_SOURCE
#include "cuda.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
pid_t cuda_owner;
int cuda_visible[MAX_GPUS], cuda_visible_count;
bool cuda_is_mps_client;

int cuda_enter(const struct world *w, const char *function, int gpu, calls_t calls) {
	if (cuda_owner != getpid()) return NOT_INITIALIZED;
	return world_act(w, function, gpu, calls);
}

// Start

int cuda_open_node(const char *name) {
	char path[PATH_MAX], node[64];
	snprintf(node, sizeof node, "dev/%s", name);
	return open(world_path(path, node), O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
}

// The cards this process can reach, in PCI order, and their nodes' descriptors. A card whose node the job's device
// cgroup denies does not exist for CUDA: indexes count the others.
struct reach {
	int n, gpu[MAX_GPUS], fd[MAX_GPUS];
};

static void find_reach(const struct world *w, struct reach *r) {
	r->n = 0;
	for (int i = 0; world_card(w, i) >= 0; i++) {
		char node[32];
		int gpu = world_card(w, i);
		snprintf(node, sizeof node, "nvidia%lld", world_num(w, gpu, "minor", gpu));
		int fd = cuda_open_node(node);
		if (fd < 0) continue;
		r->gpu[r->n] = gpu;
		r->fd[r->n++] = fd;
	}
}

static int index_of(const struct world *w, const struct reach *r, const char *id) {
	char *end;
	long index = strtol(id, &end, 10);
	if (*id && !*end) return index < 0 || index >= r->n ? -1 : (int)index;
	for (int i = 0; strlen(id) > 4 && i < r->n; i++)
		if (!world_num(w, r->gpu[i], "mig", 0) && !strncmp(world_text(w, r->gpu[i], "uuid", ""), id, strlen(id))) return i;
	return -1;
}

static int card_of_instance(const struct world *w, const struct reach *r, const char *id) {
	for (int i = 0; i < r->n; i++)
		if (cuda_choose_instance(w, r->gpu[i], id)) return i;
	return -1;
}

// CUDA_VISIBLE_DEVICES: indexes in PCI order or (beginnings of) UUIDs; the first unknown one ends the list. So does a
// MIG instance, beside which there is nothing.
static void choose(const struct world *w, const struct reach *r, const char *list, bool chosen[MAX_GPUS]) {
	char *copy = strdup(list), *rest = copy, *id;
	while (copy && (id = strsep(&rest, ",")) && cuda_visible_count < MAX_GPUS) {
		int i = cuda_visible_count ? -1 : card_of_instance(w, r, id);
		if (i < 0) i = cuda_instance < 0 ? index_of(w, r, id) : -1;
		if (i < 0 || chosen[i]) break;
		chosen[i] = true;
		cuda_visible[cuda_visible_count++] = r->gpu[i];
	}
	free(copy);
}

// The chosen cards' descriptors stay: a CUDA process is known by its open device nodes.
static void find_devices(const struct world *w) {
	struct reach r;
	bool chosen[MAX_GPUS] = {false};
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	find_reach(w, &r);
	cuda_visible_count = 0;
	if (list) choose(w, &r, list, chosen);
	for (int i = 0; i < r.n; i++) {
		if (!list) cuda_visible[cuda_visible_count++] = r.gpu[i];
		else if (!chosen[i]) close(r.fd[i]);
	}
}

static int start(const struct world *w) {
	if (cuda_open_node("nvidiactl") < 0) return NO_DEVICE;
	if (cuda_open_node("nvidia-uvm") < 0) return UNKNOWN;
	find_devices(w);
	if (cuda_visible_count == 0) return NO_DEVICE;
	cuda_is_mps_client = cuda_join_mps();
	cuda_owner = getpid();
	return OK;
}

EXPORT CUresult cuInit(unsigned flags) {
	WORLD;
	if (flags) return INVALID_VALUE;
	int rc = world_act(&w, __func__, ANY_GPU, calls);
	if (rc > 0) return rc;
	pthread_mutex_lock(&lock);
	rc = !cuda_owner ? start(&w) : cuda_owner == getpid() ? OK : NOT_INITIALIZED;
	pthread_mutex_unlock(&lock);
	return rc;
}

// Devices

EXPORT CUresult cuDeviceGetCount(int *out) {
	ENTER(ANY_GPU);
	*out = cuda_visible_count;
	return OK;
}
EXPORT CUresult cuDeviceGet(CUdevice *out, int ordinal) {
	ENTER_DEVICE(ordinal);
	*out = ordinal;
	return OK;
}
static bool same_bus(const char *a, const char *b) {
	unsigned x[4], y[4];
	return sscanf(a, "%x:%x:%x.%x", x, x + 1, x + 2, x + 3) == 4 &&
	       sscanf(b, "%x:%x:%x.%x", y, y + 1, y + 2, y + 3) == 4 && !memcmp(x, y, sizeof x);
}
EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *out, const char *id) {
	ENTER(ANY_GPU);
	for (int i = 0; i < cuda_visible_count; i++) {
		if (!same_bus(world_text(&w, cuda_visible[i], "bus", ""), id)) continue;
		*out = i;
		return OK;
	}
	return INVALID_DEVICE;
}
EXPORT CUresult cuDeviceGetUuid_v2(unsigned char out[16], CUdevice device) {
	ENTER_DEVICE(device);
	int n = 0;
	for (const char *p = cuda_visible_uuid(&w, gpu) + strlen("GPU-"); *p && n < 16; p += 2) {
		if (*p == '-') p++;
		if (sscanf(p, "%2hhx", &out[n++]) != 1) return UNKNOWN;
	}
	return n == 16 ? OK : UNKNOWN;
}
EXPORT CUresult cuDeviceTotalMem_v2(size_t *out, CUdevice device) {
	ENTER_DEVICE(device);
	*out = (world_num(&w, gpu, "total_mib", 0) - world_num(&w, gpu, "reserved_mib", 0)) * MIB;
	return OK;
}
EXPORT CUresult cuDeviceGetAttribute(int *out, int attribute, CUdevice device) {
	ENTER_DEVICE(device);
	enum { VIRTUAL_MEMORY_MANAGEMENT = 102 };
	*out = attribute == VIRTUAL_MEMORY_MANAGEMENT ? (int)world_num(&w, gpu, "vmm", 1) : 0;
	return OK;
}

// The names of its codes

static const struct { int rc; const char *name; } errors[] = {
	{0, "CUDA_SUCCESS"},
	{1, "CUDA_ERROR_INVALID_VALUE"},
	{2, "CUDA_ERROR_OUT_OF_MEMORY"},
	{3, "CUDA_ERROR_NOT_INITIALIZED"},
	{46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
	{100, "CUDA_ERROR_NO_DEVICE"},
	{101, "CUDA_ERROR_INVALID_DEVICE"},
	{201, "CUDA_ERROR_INVALID_CONTEXT"},
	{214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
	{304, "CUDA_ERROR_OPERATING_SYSTEM"},
	{400, "CUDA_ERROR_INVALID_HANDLE"},
	{720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"},
	{801, "CUDA_ERROR_NOT_SUPPORTED"},
	{803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
	{999, "CUDA_ERROR_UNKNOWN"},
};
EXPORT CUresult cuGetErrorName(CUresult rc, const char **out) {
	*out = NULL;
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].rc == rc) *out = errors[i].name;
	return *out ? OK : INVALID_VALUE;
}
