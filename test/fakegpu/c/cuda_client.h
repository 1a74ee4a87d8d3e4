// What a process holds on the fake driver: a client for each card, and blocks of memory. Callers have cuda_lock.
#ifndef FAKEGPU_CUDA_CLIENT_H
#define FAKEGPU_CUDA_CLIENT_H

#include "cuda.h"

#include <pthread.h>

typedef struct client *CUcontext;
typedef unsigned long long CUdeviceptr, Handle;
#define GRANULE (2 * MIB)

// This process on one card.
struct client {
	bool open, retained;
	int gpu, fd; // fd holds while open
	char file[PATH_MAX];
	struct ledger ledger;
};
// One allocation. An export, and what is shared by CUDA IPC, has a descriptor and a file of its own.
struct block {
	unsigned long long at, bytes; // bytes 0: freed
	int gpu, fd;
	char *file;
	unsigned char fill;  // what its bytes were set to
	unsigned char *kept; // the bytes themselves, of a small private one
	bool mapped;        // another process's
};

extern pthread_mutex_t cuda_lock;
extern _Thread_local CUcontext cuda_current;

// cuda_instance_usage makes u the instance's, if this process is on one.
void cuda_instance_usage(const struct world *w, const struct client *c, struct usage *u);
struct client *client_on(int gpu);
// client_context makes a context of so many bytes, without the lock on what room there is.
int client_context(const struct world *w, struct client *c, unsigned long long bytes);
// client_settle writes down what the client has now; a client without anything goes.
void client_settle(struct client *c);
// block_new writes the address, which is the handle too.
int block_new(struct block b, unsigned long long *out);
// block_at finds the block that has this address, NULL if none.
struct block *block_at(unsigned long long address);
// block_take takes room; it alone needs cuda_lock free.
int block_take(const struct world *w, int gpu, unsigned long long bytes, bool exported, unsigned long long *out);
int block_free(unsigned long long handle); // likewise

#endif
