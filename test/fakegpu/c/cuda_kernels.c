// libcuda.so.1: the two kernels of a pattern test. The memory keeps no byte, but what it was filled with last; key
// gpu.wrong says which words come back otherwise: INDEX:MASK, separated by spaces.
#define _GNU_SOURCE
#include "cuda_client.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT 8 // wrong words that the kernel keeps
enum { FILL = 1, CHECK, FLIP };

static struct { unsigned long long at, pairs, seed, flipped, mask; } filled;

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
	ENTER_DEVICE(device);
	pthread_mutex_lock(&cuda_lock);
	struct client *c = client_on(gpu);
	c->retained = false;
	c->ledger.context = 0;
	client_settle(c);
	pthread_mutex_unlock(&cuda_lock);
	return OK;
}
EXPORT CUresult cuModuleLoadData(const char **module, const char *text) {
	ENTER(ANY_GPU);
	if (!cuda_current || !cuda_current->retained) return INVALID_CONTEXT;
	*module = strdup(text);
	return OK;
}
EXPORT CUresult cuModuleGetFunction(void **kernel, const char *module, const char *name) {
	enum { NOT_FOUND = 500 };
	ENTER(ANY_GPU);
	char entry[64];
	snprintf(entry, sizeof entry, ".entry %s(", name);
	if (!strstr(module, entry)) return NOT_FOUND;
	*kernel = (void *)(size_t)(!strcmp(name, "fill") ? FILL : !strcmp(name, "flip") ? FLIP : CHECK);
	return OK;
}

static unsigned long long value_at(unsigned long long index) { return index * 0x9e3779b97f4a7c15 ^ filled.seed; }

static void differs(unsigned long long *found, unsigned long long index, unsigned long long mask) {
	if (found[0] < KEPT) {
		found[1 + 2 * found[0]] = index;
		found[2 + 2 * found[0]] = value_at(index) ^ mask;
	}
	found[0]++;
}

// Callers have cuda_lock.
static int check(const struct world *w, unsigned long long pairs, unsigned long long result) {
	struct block *b = block_at(result);
	if (!b || !b->kept) return INVALID_VALUE;
	unsigned long long *found = (unsigned long long *)b->kept, index, mask;
	const char *wrong = world_text(w, cuda_current->gpu, "wrong", "");
	for (int read; sscanf(wrong, "%llu:%llx%n", &index, &mask, &read) == 2; wrong += read)
		if (index < 2 * pairs) differs(found, index, mask);
	if (filled.mask) differs(found, filled.flipped, filled.mask);
	return OK;
}

static int run(const struct world *w, size_t kernel, unsigned long long **arguments) {
	unsigned long long at = *arguments[0], pairs = *arguments[1], seed = *arguments[2];
	struct block *b = block_at(at);
	if (kernel == FLIP) {
		if (!b) return INVALID_VALUE;
		filled.flipped = (at - b->at) / 8, filled.mask = pairs; // its second argument
		return OK;
	}
	if (!b || 16 * pairs > b->bytes - (at - b->at)) return INVALID_VALUE;
	if (kernel == CHECK) {
		bool same = at == filled.at && pairs == filled.pairs && seed == filled.seed;
		return same ? check(w, pairs, *arguments[3]) : INVALID_VALUE;
	}
	filled.at = at, filled.pairs = pairs, filled.seed = seed, filled.mask = 0;
	return OK;
}

EXPORT CUresult cuLaunchKernel(void *kernel, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                               unsigned shared, void *stream, void **arguments, void **extra) {
	if (!cuda_current || !cuda_current->retained) return cuda_owner ? INVALID_CONTEXT : NOT_INITIALIZED;
	ENTER(cuda_current->gpu);
	if (!x || !bx || bx * by * bz > 1024 || y != 1 || z != 1 || shared || stream || extra) return INVALID_VALUE;
	pthread_mutex_lock(&cuda_lock);
	int rc = run(&w, (size_t)kernel, (unsigned long long **)arguments);
	pthread_mutex_unlock(&cuda_lock);
	return rc;
}
EXPORT CUresult cuStreamQuery(void *stream) {
	ENTER(ANY_GPU);
	return stream ? INVALID_HANDLE : OK;
}
