// libnvidia-ml.so.1: memory and processes.
#define _GNU_SOURCE
#include "nvml.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Memory

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out) {
	ENTER_ANY(device);
	if (out->version != (sizeof *out | 2u << 24)) return VERSION_MISMATCH;
	struct usage u;
	char token[PATH_MAX];
	mig_usage(&w, gpu, instance, &u);
	// A call that falls into a teardown may block (measured): the keeper leaves a token, the first call takes it.
	if (unlink(world_path(token, "alloc/.stall")) == 0) world_nap(380);
	*out = (nvmlMemory_v2_t){out->version, u.total, u.reserved, u.free, u.used};
	return SUCCESS;
}

// Processes

typedef struct {
	unsigned pid;
	unsigned long long bytes;
	unsigned gpu_instance, compute_instance;
} nvmlProcessInfo_t;

struct process_list {
	unsigned n;
	nvmlProcessInfo_t all[2 * MAX_LISTED];
};

// An entry names the instance it is on; without MIG both ids are all ones.
static void add(struct process_list *l, const struct world *w, int gpu, int instance, unsigned pid,
                unsigned long long bytes) {
	if (l->n == 2 * MAX_LISTED) return;
	unsigned gi = ~0u, ci = ~0u;
	if (instance != WHOLE) {
		gi = (unsigned)mig_num(w, gpu, instance, "gi", 0);
		ci = (unsigned)mig_num(w, gpu, instance, "ci", 0);
	}
	l->all[l->n++] = (nvmlProcessInfo_t){pid, bytes, gi, ci};
}

// A list key = PID:MIB[:ROLE] ... names processes that are not there; MIB -1 is "not available".
static void add_invented(const struct world *w, int gpu, int instance, const char *role, struct process_list *l) {
	const char *p = instance == WHOLE ? world_text(w, gpu, "list", "") : mig_text(w, gpu, instance, "list", "");
	long long pid, mib;
	char as[16];
	for (int used; sscanf(p, " %lld:%lld%n", &pid, &mib, &used) == 2; p += used) {
		p += used;
		used = 0;
		strcpy(as, "compute");
		sscanf(p, ":%15[a-z]%n", as, &used);
		if (!strcmp(as, role)) add(l, w, gpu, instance, (unsigned)pid, mib < 0 ? ~0ULL : (unsigned long long)mib * MIB);
	}
}

// A card lists its instances' processes too. An instance lists its own, or with gpuN.mig_lists = parent the card's.
static void collect(const struct world *w, int gpu, int instance, const char *role, struct process_list *l) {
	struct usage u;
	bool all = instance == WHOLE || !strcmp(world_text(w, gpu, "mig_lists", ""), "parent");
	world_usage(w, gpu, &u);
	l->n = 0;
	for (int i = 0; i < u.n; i++) {
		const struct listed *p = &u.processes[i];
		int on = mig_place(w, gpu, p->pid);
		// An MPS client stands in the compute list and in the MPS list.
		bool here = !strcmp(p->list, role) || (!strcmp(p->list, "mps") && !strcmp(role, "compute"));
		if (here && (all || on == instance)) add(l, w, gpu, on, (unsigned)p->pid, p->bytes);
	}
	for (int i = WHOLE; i < MAX_INSTANCES; i++)
		if ((all || i == instance) && (i == WHOLE || mig_exists(w, gpu, i))) add_invented(w, gpu, i, role, l);
}

// Drivers 535.43 to 535.86 filled 32-byte structures into the caller's 24-byte ones. The overrun itself is left
// out: it would damage the caller instead of misleading it.
static void give(const struct process_list *l, void *infos, size_t stride) {
	char *out = infos;
	size_t room = l->n * sizeof(nvmlProcessInfo_t);
	memset(out, 0, room);
	for (size_t i = 0; i < l->n && i * stride < room; i++) {
		size_t left = room - i * stride;
		memcpy(out + i * stride, &l->all[i], left < sizeof l->all[i] ? left : sizeof l->all[i]);
	}
}

// The key process_stride lays every version's entries out anew, process_stride_v3 that of version 3 alone.
static size_t stride_of(const struct world *w, const char *function) {
	long long stride = world_num(w, ANY_GPU, "process_stride", sizeof(nvmlProcessInfo_t));
	if (strstr(function, "_v3")) stride = world_num(w, ANY_GPU, "process_stride_v3", stride);
	return (size_t)stride;
}

static int processes(const struct world *w, int gpu, int instance, const char *role, size_t stride, unsigned *count,
                     void *infos) {
	struct process_list l;
	collect(w, gpu, instance, role, &l);
	unsigned room = *count;
	*count = l.n;
	if (l.n > room) return INSUFFICIENT_SIZE;
	if (l.n > 0 && !infos) return INVALID_ARGUMENT;
	if (l.n > 0) give(&l, infos, stride);
	return SUCCESS;
}

#define PROCESS_LIST(function, role) \
	EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos) { \
		ENTER_ANY(device); \
		return processes(&w, gpu, instance, role, stride_of(&w, __func__), count, infos); \
	}
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v2, "compute")
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics")
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, "mps")
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, "compute")
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics")
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps")
