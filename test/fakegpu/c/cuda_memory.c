// libcuda.so.1: contexts and memory.
#define _GNU_SOURCE
#include "cuda.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct client *CUcontext;
typedef unsigned long long CUdeviceptr, Handle;
#define GRANULE (2 * MIB)
#define HANDLE_BASE 0x7f0000000000ULL

// This process on one card.
struct client {
	bool open;
	int gpu, fd, retained; // fd holds while open
	char file[PATH_MAX];
	struct ledger ledger;
};
// One allocation; an export has a descriptor and a file of its own.
struct block {
	int gpu, fd;
	unsigned long long bytes; // 0: freed
	char *file;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct client clients[MAX_GPUS];
static struct block *blocks;
static size_t block_count;
static _Thread_local CUcontext current;

// Room and the ledger

static struct client *client_on(int gpu) {
	clients[gpu].gpu = gpu;
	return &clients[gpu];
}

// room is what one new allocation may take at most. The driver's own footprint of a client without a context
// comes out of the gap, not on top of it: measured, free - 2 MiB still succeeds.
static unsigned long long room(const struct world *w, const struct client *c) {
	static _Thread_local struct usage u;
	world_usage(w, c->gpu, &u);
	unsigned long long free = u.total - u.reserved - u.used;
	if (c->open && !c->ledger.context && !c->ledger.memory) free += c->ledger.hidden;
	free = free > GRANULE ? free - GRANULE : 0;
	unsigned long long largest = (unsigned long long)world_num(w, c->gpu, "largest_mib", 1LL << 40) * MIB;
	return free < largest ? free : largest;
}

static bool open_client(struct client *c) {
	if (c->open) return true;
	c->ledger = (struct ledger){.gpu = c->gpu};
	alloc_sign(&c->ledger);
	const char *list = getenv("FAKECUDA_LIST"); // fakecuda's --list
	snprintf(c->ledger.list, sizeof c->ledger.list, "%s", list ? list : "compute");
	c->fd = alloc_create(&c->ledger, c->file);
	c->ledger.seq++;
	return c->open = c->fd >= 0;
}

// An explicit free is over when the call returns; only what dies with its process goes through a teardown.
static void settle(struct client *c) {
	if (!c->open) return;
	if (c->ledger.context || c->ledger.memory) {
		alloc_write(c->fd, &c->ledger);
		return;
	}
	unlink(c->file);
	close(c->fd);
	c->open = false;
}

// An export that somebody else holds stays.
static void drop_export(struct block *b) {
	int look = open(b->file, O_RDONLY | O_CLOEXEC);
	close(b->fd);
	if (look >= 0 && !alloc_locked(look)) unlink(b->file);
	if (look >= 0) close(look);
	free(b->file);
}

static int take_context(const struct world *w, struct client *c) {
	unsigned long long hidden = world_num(w, ANY_GPU, "client_hidden_mib", 9) * MIB;
	unsigned long long context = world_num(w, ANY_GPU, "context_mib", 527) * MIB;
	if (c->open && c->ledger.context) return OK;
	if (room(w, c) < context || !open_client(c)) return OUT_OF_MEMORY;
	c->ledger.context = context - hidden;
	c->ledger.hidden = hidden;
	alloc_write(c->fd, &c->ledger);
	return OK;
}

static int new_block(int gpu, int fd, const char *file, unsigned long long bytes, unsigned long long *out) {
	if ((block_count & (block_count - 1)) == 0) {
		struct block *more = realloc(blocks, (block_count ? 2 * block_count : 1) * sizeof *blocks);
		if (!more) return OUT_OF_MEMORY;
		blocks = more;
	}
	blocks[block_count] = (struct block){gpu, fd, bytes, file ? strdup(file) : NULL};
	*out = HANDLE_BASE + block_count++ * GRANULE;
	return OK;
}

static struct block *block_of(unsigned long long handle) {
	unsigned long long i = (handle - HANDLE_BASE) / GRANULE;
	return handle >= HANDLE_BASE && i < block_count && blocks[i].bytes ? &blocks[i] : NULL;
}

static int take_private(const struct world *w, struct client *c, unsigned long long bytes, unsigned long long *out) {
	if (!open_client(c)) return OUT_OF_MEMORY;
	if (!c->ledger.context) c->ledger.hidden = world_num(w, ANY_GPU, "contextless_mib", 3) * MIB;
	c->ledger.memory += bytes;
	c->ledger.blocks++;
	alloc_write(c->fd, &c->ledger);
	return new_block(c->gpu, -1, NULL, bytes, out);
}

static int take_export(struct client *c, unsigned long long bytes, unsigned long long *out) {
	struct ledger l = {.gpu = c->gpu, .list = "-", .memory = bytes, .blocks = 1};
	alloc_sign(&l);
	char file[PATH_MAX];
	int fd = alloc_create(&l, file);
	return fd < 0 ? OUT_OF_MEMORY : new_block(c->gpu, fd, file, bytes, out);
}

// take holds both locks: no other thread and no other process may take the same room.
static int take(const struct world *w, int gpu, unsigned long long bytes, bool exported, unsigned long long *out) {
	pthread_mutex_lock(&lock);
	int guard = alloc_guard();
	struct client *c = client_on(gpu);
	int rc = bytes > room(w, c) ? OUT_OF_MEMORY : exported ? take_export(c, bytes, out) : take_private(w, c, bytes, out);
	if (guard >= 0) close(guard);
	pthread_mutex_unlock(&lock);
	return rc;
}

static int give_back(unsigned long long handle) {
	pthread_mutex_lock(&lock);
	struct block *b = block_of(handle);
	if (b && b->file) drop_export(b);
	else if (b) {
		clients[b->gpu].ledger.memory -= b->bytes;
		clients[b->gpu].ledger.blocks--;
		settle(&clients[b->gpu]);
	}
	if (b) *b = (struct block){.fd = -1};
	pthread_mutex_unlock(&lock);
	return b ? OK : INVALID_VALUE;
}

// Contexts

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
	ENTER_DEVICE(device);
	(void)flags;
	return OK;
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
	ENTER_DEVICE(device);
	pthread_mutex_lock(&lock);
	int guard = alloc_guard();
	struct client *c = client_on(gpu);
	int rc = take_context(&w, c);
	if (rc == OK) c->retained++, *out = c;
	if (guard >= 0) close(guard);
	pthread_mutex_unlock(&lock);
	return rc;
}
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
	ENTER_DEVICE(device);
	pthread_mutex_lock(&lock);
	struct client *c = client_on(gpu);
	int rc = c->retained ? OK : INVALID_CONTEXT;
	if (c->retained && --c->retained == 0) {
		for (size_t i = 0; i < block_count; i++)
			if (blocks[i].gpu == gpu && !blocks[i].file) blocks[i].bytes = 0;
		c->ledger.context = c->ledger.memory = c->ledger.blocks = 0;
		settle(c);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}
EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
	ENTER(ANY_GPU);
	current = context;
	return OK;
}
EXPORT CUresult cuCtxGetCurrent(CUcontext *out) {
	ENTER(ANY_GPU);
	*out = current;
	return OK;
}

// Memory

EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
	if (!current || !current->retained) return cuda_owner ? INVALID_CONTEXT : NOT_INITIALIZED;
	ENTER(current->gpu);
	static _Thread_local struct usage u;
	world_usage(&w, current->gpu, &u);
	*free = u.free;
	*total = u.total - u.reserved;
	return OK;
}
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
	if (!current || !current->retained) return cuda_owner ? INVALID_CONTEXT : NOT_INITIALIZED;
	ENTER(current->gpu);
	return bytes ? take(&w, current->gpu, bytes, false, out) : INVALID_VALUE;
}
EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
	ENTER(ANY_GPU);
	return give_back(pointer);
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
	return take(&w, gpu, bytes, prop->requestedHandleTypes & 1, out);
}
EXPORT CUresult cuMemRelease(Handle handle) {
	pthread_mutex_lock(&lock);
	struct block *b = block_of(handle);
	int gpu = b ? b->gpu : ANY_GPU;
	pthread_mutex_unlock(&lock);
	ENTER(gpu);
	return give_back(handle);
}
// The descriptor carries the memory: it lives until the last copy is closed.
EXPORT CUresult cuMemExportToShareableHandle(int *out, Handle handle, int type, unsigned long long flags) {
	ENTER(ANY_GPU);
	(void)flags;
	pthread_mutex_lock(&lock);
	struct block *b = block_of(handle);
	int rc = !b || !b->file || type != 1 ? INVALID_VALUE : OK;
	if (rc == OK) rc = (*out = fcntl(b->fd, F_DUPFD_CLOEXEC, 0)) < 0 ? UNKNOWN : OK;
	pthread_mutex_unlock(&lock);
	return rc;
}
