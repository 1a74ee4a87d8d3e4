// libnvidia-ml.so.1: MIG, a card cut into instances.
#define _GNU_SOURCE
#include "nvml.h"

#include <stdlib.h>
#include <string.h>

int mig_place(const struct world *w, int gpu, int pid) {
	for (int instance = 0; instance < MAX_INSTANCES; instance++) {
		if (!mig_exists(w, gpu, instance)) continue;
		char *end = NULL;
		for (const char *p = mig_text(w, gpu, instance, "pids", ""); *p; p = end) {
			if (strtol(p, &end, 10) == pid) return instance;
			if (end == p) break;
		}
	}
	return WHOLE;
}

nvmlDevice_t mig_named(const struct world *w, const char *uuid) {
	for (int gpu = 0; uuid && gpu < world_cards(w); gpu++)
		for (int instance = 0; instance < MAX_INSTANCES; instance++)
			if (mig_exists(w, gpu, instance) && !strcmp(mig_text(w, gpu, instance, "uuid", ""), uuid))
				return nvml_handle(gpu, instance);
	return NULL;
}

static unsigned long long extra(const struct world *w, int gpu, int instance) {
	return (unsigned long long)mig_num(w, gpu, instance, "extra_mib", 0) * MIB;
}

static void fill(struct usage *u, unsigned long long used) {
	unsigned long long most = u->total - u->reserved;
	u->used = used < most ? used : most;
	u->free = most - u->used;
}

void mig_usage(const struct world *w, int gpu, int instance, struct usage *u) {
	unsigned long long used = 0, hidden = world_num(w, ANY_GPU, "client_hidden_mib", 9) * MIB;
	world_usage(w, gpu, u);
	if (instance == WHOLE) {
		for (int i = 0; i < MAX_INSTANCES; i++)
			if (mig_exists(w, gpu, i)) used += extra(w, gpu, i);
		fill(u, u->used + used);
		return;
	}
	long long gi = mig_num(w, gpu, instance, "gi", 0);
	for (int i = 0; i < MAX_INSTANCES; i++) {
		if (!mig_exists(w, gpu, i) || mig_num(w, gpu, i, "gi", 0) != gi) continue;
		used += extra(w, gpu, i);
		for (int n = 0; n < u->n; n++)
			if (mig_place(w, gpu, u->processes[n].pid) == i) used += u->processes[n].bytes + hidden;
	}
	u->total = mig_num(w, gpu, instance, "mib", 0) * MIB;
	u->reserved = mig_num(w, gpu, instance, "reserved_mib", 0) * MIB;
	fill(u, used);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
	ENTER_DEVICE(device);
	*current = *pending = (unsigned)world_num(&w, gpu, "mig", 0);
	return SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *out) {
	ENTER_DEVICE(device);
	*out = MAX_INSTANCES;
	return SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *out) {
	ENTER_DEVICE(device);
	if (index >= MAX_INSTANCES) return INVALID_ARGUMENT;
	if (!mig_exists(&w, gpu, (int)index)) return NOT_FOUND;
	*out = nvml_handle(gpu, (int)index);
	return SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *out) {
	ENTER_ANY(device);
	if (instance == WHOLE) return NOT_FOUND;
	*out = nvml_handle(gpu, WHOLE);
	return SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *out) {
	ENTER_ANY(device);
	if (instance == WHOLE) return NOT_SUPPORTED;
	*out = (unsigned)mig_num(&w, gpu, instance, "gi", 0);
	return SUCCESS;
}
