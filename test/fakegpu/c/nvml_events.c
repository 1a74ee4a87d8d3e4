// libnvidia-ml.so.1: events. As measured on an H200 under driver 580: a set gets what happens after the registration,
// in order; a wait of 0 ms answers at once; the event has the handle that was registered, and no MIG instance.
#define _GNU_SOURCE
#include "nvml.h"

#include <stdlib.h>
#include <string.h>

#define MAX_SETS 8

// The key events of a card lists all that ever happened to it: TYPE:DATA TYPE:DATA ...
static struct set {
	bool used;
	unsigned long long types[MAX_GPUS]; // registered, 0 for none
	int seen[MAX_GPUS];                 // entries of the list that came before, or were delivered
} sets[MAX_SETS];

static const char *entry(const struct world *w, int gpu, int n, unsigned long long event[2]) {
	char *at = (char *)world_text(w, gpu, "events", "");
	for (int i = 0; *at; i++) {
		event[0] = strtoull(at, &at, 0);
		if (*at != ':') return NULL;
		event[1] = strtoull(at + 1, &at, 0);
		if (i == n) return at;
		at += strspn(at, " ");
	}
	return NULL;
}

EXPORT nvmlReturn_t nvmlEventSetCreate(struct set **out) {
	ENTER(ANY_GPU);
	for (struct set *s = sets; s < sets + MAX_SETS; s++)
		if (!s->used) {
			s->used = true;
			*out = s;
			return SUCCESS;
		}
	return UNKNOWN;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *out) {
	ENTER_DEVICE(device);
	*out = (unsigned long long)world_num(&w, gpu, "event_types", 0xff9f);
	return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, struct set *set) {
	ENTER_DEVICE(device);
	unsigned long long event[2];
	if (types & ~(unsigned long long)world_num(&w, gpu, "event_types", 0xff9f)) return NOT_SUPPORTED;
	set->types[gpu] |= types;
	while (entry(&w, gpu, set->seen[gpu], event)) set->seen[gpu]++;
	return SUCCESS;
}

typedef struct {
	nvmlDevice_t device;
	unsigned long long type, data;
	unsigned gpu_instance, compute_instance;
} nvmlEventData_t;

EXPORT nvmlReturn_t nvmlEventSetWait_v2(struct set *set, nvmlEventData_t *out, unsigned ms) {
	ENTER(ANY_GPU);
	unsigned long long event[2];
	for (int gpu = 0; gpu < world_cards(&w); gpu++)
		while (set->types[gpu] && entry(&w, gpu, set->seen[gpu], event)) {
			set->seen[gpu]++;
			if (!(set->types[gpu] & event[0])) continue;
			*out = (nvmlEventData_t){nvml_handle(gpu, WHOLE), event[0], event[1], ~0u, ~0u};
			return SUCCESS;
		}
	world_nap(ms);
	return TIMEOUT;
}
