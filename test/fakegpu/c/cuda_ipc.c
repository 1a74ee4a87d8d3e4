// libcuda.so.1: CUDA IPC. Memory that one process has offered to others gets a ledger file of its own: it lives while
// anybody holds that file's lock, the process that allocated it or one that mapped it.
#define _GNU_SOURCE
#include "cuda_client.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define NAME_SIZE 63

// The handle as programs pass it on.
typedef struct {
	char name[NAME_SIZE]; // the ledger file's
	unsigned char fill;
} CUipcMemHandle;

// The block moves from the client's file into its own.
static int offer(struct block *b) {
	char file[PATH_MAX];
	struct client *c = client_on(b->gpu);
	struct ledger l = {.gpu = b->gpu, .list = SHARED, .memory = b->bytes, .blocks = 1};
	alloc_sign(&l);
	c->ledger.memory -= b->bytes;
	c->ledger.blocks--;
	if ((b->fd = alloc_create(&l, file)) < 0) return OUT_OF_MEMORY;
	b->file = strdup(file);
	client_settle(c);
	return OK;
}

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr pointer) {
	ENTER(ANY_GPU);
	pthread_mutex_lock(&cuda_lock);
	struct block *b = block_at(pointer);
	int rc = !b || b->mapped ? INVALID_VALUE : b->file ? OK : offer(b);
	const char *name = rc == OK ? strrchr(b->file, '/') + 1 : "";
	memset(out, 0, sizeof *out);
	if (rc == OK && strlen(name) >= NAME_SIZE) rc = UNKNOWN;
	if (rc == OK) {
		strcpy(out->name, name);
		out->fill = b->fill;
	}
	pthread_mutex_unlock(&cuda_lock);
	return rc;
}

// The driver shows what is mapped in the figures of both processes.
static int map(const char *file, int fd, unsigned char fill, CUdeviceptr *out) {
	struct ledger l;
	if (!alloc_share(fd) || !alloc_read(fd, &l)) return INVALID_HANDLE; // its last holder is gone
	struct client *c = client_on(l.gpu);
	if (!c->open || !c->ledger.context) return INVALID_CONTEXT;
	c->ledger.mapped += l.memory;
	client_settle(c);
	struct block b = {.gpu = l.gpu, .fd = fd, .bytes = l.memory, .file = strdup(file), .fill = fill, .mapped = true};
	return block_new(b, out);
}

EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags) {
	if (!cuda_current || !cuda_current->retained) return cuda_owner ? INVALID_CONTEXT : NOT_INITIALIZED;
	ENTER(cuda_current->gpu);
	char name[NAME_SIZE + 8] = "alloc/", file[PATH_MAX];
	(void)flags;
	strncat(name, handle.name, NAME_SIZE);
	int fd = strchr(handle.name, '/') ? -1 : open(world_path(file, name), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0) return INVALID_HANDLE;
	pthread_mutex_lock(&cuda_lock);
	int rc = map(file, fd, handle.fill, out);
	pthread_mutex_unlock(&cuda_lock);
	if (rc != OK) close(fd);
	return rc;
}
