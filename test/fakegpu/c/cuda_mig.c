// libcuda.so.1: a process computes on one MIG instance, if its CUDA_VISIBLE_DEVICES names one. The card's own UUID then
// names nothing.
#include "cuda_client.h"

#include <string.h>

int cuda_instance = WHOLE;

bool cuda_choose_instance(const struct world *w, int gpu, const char *id) {
	for (int i = 0; i < MAX_INSTANCES; i++)
		if (mig_exists(w, gpu, i) && !strcmp(mig_text(w, gpu, i, "uuid", ""), id)) {
			cuda_instance = i;
			return true;
		}
	return false;
}

const char *cuda_visible_uuid(const struct world *w, int gpu) {
	return cuda_instance == WHOLE ? world_text(w, gpu, "uuid", "") : mig_text(w, gpu, cuda_instance, "uuid", "");
}

// Only this process's own memory is known to be on the instance.
void cuda_instance_usage(const struct world *w, const struct client *c, struct usage *u) {
	if (cuda_instance == WHOLE) return;
	u->total = mig_num(w, c->gpu, cuda_instance, "mib", 0) * MIB;
	u->reserved = mig_num(w, c->gpu, cuda_instance, "reserved_mib", 0) * MIB;
	u->used = mig_num(w, c->gpu, cuda_instance, "extra_mib", 0) * MIB;
	if (c->open) u->used += c->ledger.context + c->ledger.hidden + c->ledger.memory;
}
