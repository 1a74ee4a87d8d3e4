// What the files of libcuda.so.1 share.
#ifndef FAKEGPU_CUDA_H
#define FAKEGPU_CUDA_H

#include "world.h"

typedef int CUresult, CUdevice;
enum {
	OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201, INVALID_HANDLE = 400, UNKNOWN = 999,
};
#define EXPORT __attribute__((visibility("default")))

extern pid_t cuda_owner; // 0 before cuInit; a forked child inherits the memory but may not use the driver
extern int cuda_visible[MAX_GPUS], cuda_visible_count; // CUDA's ordinals: cards in world.conf's numbers
extern bool cuda_is_mps_client;
// The MIG instance that this process computes on, as an index of its only visible card; or -1.
extern int cuda_instance;
bool cuda_choose_instance(const struct world *w, int gpu, const char *id);
// cuda_visible_uuid is the UUID of the card, or of the instance.
const char *cuda_visible_uuid(const struct world *w, int gpu);
// cuda_open_node opens a device node as the driver's library does, or returns -1.
int cuda_open_node(const char *name);
// cuda_join_mps reports whether an MPS daemon has taken this process in.
bool cuda_join_mps(void);
int cuda_enter(const struct world *w, const char *function, int gpu, calls_t calls);

#define WORLD \
	static calls_t calls; \
	struct world w; \
	world_load(&w)
#define ENTER(gpu) \
	WORLD; \
	int failed = cuda_enter(&w, __func__, gpu, calls); \
	if (failed >= 0) return failed
#define ENTER_DEVICE(device) \
	if ((device) < 0 || (device) >= cuda_visible_count) return cuda_owner ? INVALID_DEVICE : NOT_INITIALIZED; \
	int gpu = cuda_visible[device]; \
	ENTER(gpu)

#endif
