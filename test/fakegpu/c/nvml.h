// What the files of libnvidia-ml.so.1 share.
#ifndef FAKEGPU_NVML_H
#define FAKEGPU_NVML_H

#include "world.h"

typedef int nvmlReturn_t;
typedef struct card *nvmlDevice_t; // never dereferenced: the card's number plus one
enum {
	SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
	VERSION_MISMATCH = 25,
};
#define EXPORT __attribute__((visibility("default")))

int nvml_card(nvmlDevice_t device); // or ANY_GPU
int nvml_enter(const struct world *w, const char *function, int gpu, calls_t calls);

// Every call begins with the world as it is now, then what it has in store for this call.
#define WORLD \
	static calls_t calls; \
	struct world w; \
	world_load(&w)
#define ENTER(gpu) \
	WORLD; \
	int failed = nvml_enter(&w, __func__, gpu, calls); \
	if (failed >= 0) return failed
#define ENTER_DEVICE(device) \
	int gpu = nvml_card(device); \
	if (gpu == ANY_GPU) return INVALID_ARGUMENT; \
	ENTER(gpu)

#endif
