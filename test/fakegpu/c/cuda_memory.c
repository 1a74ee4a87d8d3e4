// libcuda.so.1: contexts and memory.
#define _GNU_SOURCE
#include "cuda_client.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

// Contexts

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
	ENTER_DEVICE(device);
	pthread_mutex_lock(&cuda_lock);
	int guard = alloc_guard();
	struct client *c = client_on(gpu);
	int rc = client_context(&w, c, world_num(&w, ANY_GPU, "context_mib", 527) * MIB);
	if (rc == OK) c->retained = true, *out = c;
	if (guard >= 0) close(guard);
	pthread_mutex_unlock(&cuda_lock);
	return rc;
}
EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
	ENTER(ANY_GPU);
	cuda_current = context;
	return OK;
}

// Memory

EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
	if (!cuda_current || !cuda_current->retained) return cuda_owner ? INVALID_CONTEXT : NOT_INITIALIZED;
	ENTER(cuda_current->gpu);
	static _Thread_local struct usage u;
	world_usage(&w, cuda_current->gpu, &u);
	*free = u.free;
	*total = u.total - u.reserved;
	return OK;
}
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
	if (!cuda_current || !cuda_current->retained) return cuda_owner ? INVALID_CONTEXT : NOT_INITIALIZED;
	ENTER(cuda_current->gpu);
	return bytes ? block_take(&w, cuda_current->gpu, bytes, false, out) : INVALID_VALUE;
}
EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
	ENTER(ANY_GPU);
	return block_free(pointer);
}

typedef struct {
	int type, requestedHandleTypes;
	struct { int type, id; } location;
	void *win32;
	unsigned char allocFlags[8];
} Prop;

static bool device_memory(const Prop *p) {
	return p && p->type == 1 && p->location.type == 1 && p->location.id >= 0 && p->location.id < cuda_visible_count;
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *out, const Prop *prop, int option) {
	ENTER(ANY_GPU);
	(void)option;
	if (!device_memory(prop)) return INVALID_VALUE;
	*out = GRANULE;
	return OK;
}
// No context needed.
EXPORT CUresult cuMemCreate(Handle *out, size_t bytes, const Prop *prop, unsigned long long flags) {
	if (!cuda_owner) return NOT_INITIALIZED;
	if (!device_memory(prop)) return INVALID_VALUE;
	int gpu = cuda_visible[prop->location.id];
	ENTER(gpu);
	if (flags || bytes == 0 || bytes % GRANULE) return INVALID_VALUE;
	return block_take(&w, gpu, bytes, prop->requestedHandleTypes & 1, out);
}
EXPORT CUresult cuMemRelease(Handle handle) {
	pthread_mutex_lock(&cuda_lock);
	struct block *b = block_at(handle);
	int gpu = b ? b->gpu : ANY_GPU;
	pthread_mutex_unlock(&cuda_lock);
	ENTER(gpu);
	return block_free(handle);
}
// The descriptor carries the memory: it lives until the last copy is closed.
EXPORT CUresult cuMemExportToShareableHandle(int *out, Handle handle, int type, unsigned long long flags) {
	ENTER(ANY_GPU);
	(void)flags;
	pthread_mutex_lock(&cuda_lock);
	struct block *b = block_at(handle);
	int rc = !b || !b->file || type != 1 ? INVALID_VALUE : OK;
	if (rc == OK) rc = (*out = fcntl(b->fd, F_DUPFD_CLOEXEC, 0)) < 0 ? UNKNOWN : OK;
	pthread_mutex_unlock(&cuda_lock);
	return rc;
}

// A large block keeps no byte: it remembers what it was filled with.

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t bytes) {
	ENTER(ANY_GPU);
	pthread_mutex_lock(&cuda_lock);
	struct block *b = block_at(to);
	bool inside = b && bytes <= b->bytes - (to - b->at);
	if (inside) b->fill = value;
	if (inside && b->kept) memset(b->kept + (to - b->at), value, bytes);
	pthread_mutex_unlock(&cuda_lock);
	return inside ? OK : INVALID_VALUE;
}
EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
	ENTER(ANY_GPU);
	pthread_mutex_lock(&cuda_lock);
	struct block *b = block_at(from);
	bool inside = b && bytes <= b->bytes - (from - b->at);
	if (inside && b->kept) memcpy(to, b->kept + (from - b->at), bytes);
	else if (inside) memset(to, b->fill, bytes);
	pthread_mutex_unlock(&cuda_lock);
	return inside ? OK : INVALID_VALUE;
}
