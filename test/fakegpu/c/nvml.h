// What the files of libnvidia-ml.so.1 share.
#ifndef FAKEGPU_NVML_H
#define FAKEGPU_NVML_H

#include "world.h"

typedef int nvmlReturn_t;
// Never dereferenced: the card's number plus one, and above it the MIG instance's index plus one, 0 for the card.
typedef struct card *nvmlDevice_t;
enum {
	SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
	TIMEOUT = 10,
	VERSION_MISMATCH = 25, UNKNOWN = 999,
};
#define EXPORT __attribute__((visibility("default")))

nvmlDevice_t nvml_handle(int gpu, int instance);
int nvml_card(nvmlDevice_t device);     // ANY_GPU for what is no whole card
int nvml_card_of(nvmlDevice_t device);  // also of an instance
int nvml_instance(nvmlDevice_t device); // or WHOLE
int nvml_enter(const struct world *w, const char *function, int gpu, calls_t calls);

// mig_place returns the instance that a process was put on, or WHOLE.
int mig_place(const struct world *w, int gpu, int pid);
// mig_named returns the handle of the instance with this UUID, or NULL.
nvmlDevice_t mig_named(const struct world *w, const char *uuid);
// mig_usage is world_usage for an instance: all compute instances of a GPU instance share its memory.
void mig_usage(const struct world *w, int gpu, int instance, struct usage *u);

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
// The calls that also answer for an instance.
#define ENTER_ANY(device) \
	int gpu = nvml_card_of(device), instance = nvml_instance(device); \
	if (gpu == ANY_GPU) return INVALID_ARGUMENT; \
	ENTER(gpu); \
	if (instance != WHOLE && !mig_exists(&w, gpu, instance)) return NOT_FOUND

#endif
