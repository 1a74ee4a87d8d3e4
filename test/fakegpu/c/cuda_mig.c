// libcuda.so.1: a process computes on one MIG instance, if its CUDA_VISIBLE_DEVICES names one. The card's own UUID then
// names nothing.
#include "cuda_client.h"

#include <stdio.h>
#include <string.h>

#define MAX_INSTANCES 7

int cuda_instance = -1;

static const char *text(const struct world *w, int gpu, int instance, const char *key) {
	char name[64];
	snprintf(name, sizeof name, "mig%d_%s", instance, key);
	return world_text(w, gpu, name, "");
}

static unsigned long long size(const struct world *w, int gpu, const char *key) {
	char name[64];
	snprintf(name, sizeof name, "mig%d_%s", cuda_instance, key);
	return (unsigned long long)world_num(w, gpu, name, 0) * MIB;
}

bool cuda_choose_instance(const struct world *w, int gpu, const char *id) {
	for (int i = 0; i < MAX_INSTANCES; i++)
		if (*text(w, gpu, i, "mib") && !strcmp(text(w, gpu, i, "uuid"), id)) {
			cuda_instance = i;
			return true;
		}
	return false;
}

const char *cuda_visible_uuid(const struct world *w, int gpu) {
	return cuda_instance < 0 ? world_text(w, gpu, "uuid", "") : text(w, gpu, cuda_instance, "uuid");
}

// Only this process's own memory is known to be on the instance.
void cuda_instance_usage(const struct world *w, const struct client *c, struct usage *u) {
	if (cuda_instance < 0) return;
	u->total = size(w, c->gpu, "mib");
	u->reserved = size(w, c->gpu, "reserved_mib");
	u->used = size(w, c->gpu, "extra_mib");
	if (c->open) u->used += c->ledger.context + c->ledger.hidden + c->ledger.memory;
}
