// libcuda.so.1: who holds what.
#define _GNU_SOURCE
#include "cuda_client.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ADDRESSES 0x7f0000000000ULL // the first of them
#define CONTEXT_NODES 20             // descriptors of its card's node in a process with a context

pthread_mutex_t cuda_lock = PTHREAD_MUTEX_INITIALIZER;
_Thread_local CUcontext cuda_current;
static struct client clients[MAX_GPUS];
static struct block *blocks; // in order of address
static size_t block_count;
static unsigned long long next_address = ADDRESSES;

// Room and the ledger

struct client *client_on(int gpu) {
	clients[gpu].gpu = gpu;
	return &clients[gpu];
}

// room is what one new allocation may take at most. The driver's own footprint of a client without a context
// comes out of the gap, not on top of it: measured, free - 2 MiB still succeeds.
static unsigned long long room(const struct world *w, const struct client *c) {
	static _Thread_local struct usage u;
	world_usage(w, c->gpu, &u);
	cuda_instance_usage(w, c, &u);
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
	snprintf(c->ledger.list, sizeof c->ledger.list, "%s", list ? list : cuda_is_mps_client ? "mps" : "compute");
	c->fd = alloc_create(&c->ledger, c->file);
	c->ledger.seq++;
	return c->open = c->fd >= 0;
}

// An explicit free is over when the call returns; only what dies with its process goes through a teardown.
void client_settle(struct client *c) {
	if (!c->open) return;
	if (c->ledger.context || c->ledger.memory) {
		alloc_write(c->fd, &c->ledger);
		return;
	}
	unlink(c->file);
	close(c->fd);
	c->open = false;
}

// What somebody else holds too stays.
static void drop_shared(struct block *b) {
	int look = open(b->file, O_RDONLY | O_CLOEXEC);
	close(b->fd);
	if (look >= 0 && !alloc_locked(look)) unlink(b->file);
	if (look >= 0) close(look);
	free(b->file);
}

// The number of descriptors and the mapping are what /proc showed of real processes. Nodes that are consoles cannot
// be mapped.
static void open_nodes(const struct world *w, int gpu) {
	char node[32];
	snprintf(node, sizeof node, "nvidia%lld", world_num(w, gpu, "minor", gpu));
	for (int n = 1; n < CONTEXT_NODES; n++) { // the first is open since cuInit
		int fd = cuda_open_node(node);
		if (n == 1 && fd >= 0) mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	}
}

int client_context(const struct world *w, struct client *c, unsigned long long bytes) {
	unsigned long long hidden = world_num(w, ANY_GPU, "client_hidden_mib", 9) * MIB;
	if (c->open && c->ledger.context) return OK;
	if (room(w, c) < bytes || !open_client(c)) return OUT_OF_MEMORY;
	c->ledger.context = bytes - hidden;
	c->ledger.hidden = hidden;
	alloc_write(c->fd, &c->ledger);
	open_nodes(w, c->gpu);
	return OK;
}

int block_new(struct block b, unsigned long long *out) {
	if ((block_count & (block_count - 1)) == 0) {
		struct block *more = realloc(blocks, (block_count ? 2 * block_count : 1) * sizeof *blocks);
		if (!more) return OUT_OF_MEMORY;
		blocks = more;
	}
	*out = b.at = next_address;
	next_address += (b.bytes + GRANULE) / GRANULE * GRANULE;
	blocks[block_count++] = b;
	return OK;
}

struct block *block_at(unsigned long long address) {
	size_t low = 0, high = block_count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (blocks[middle].at <= address) low = middle + 1;
		else high = middle;
	}
	struct block *b = low > 0 ? &blocks[low - 1] : NULL;
	return b && address - b->at < b->bytes ? b : NULL;
}

static int take_private(const struct world *w, struct client *c, unsigned long long bytes, unsigned long long *out) {
	if (!open_client(c)) return OUT_OF_MEMORY;
	if (!c->ledger.context) c->ledger.hidden = world_num(w, ANY_GPU, "contextless_mib", 3) * MIB;
	c->ledger.memory += bytes;
	c->ledger.blocks++;
	alloc_write(c->fd, &c->ledger);
	unsigned char *kept = bytes <= 4096 ? calloc(1, bytes) : NULL;
	return block_new((struct block){.gpu = c->gpu, .fd = -1, .bytes = bytes, .kept = kept}, out);
}

static int take_export(struct client *c, unsigned long long bytes, unsigned long long *out) {
	struct ledger l = {.gpu = c->gpu, .list = "-", .memory = bytes, .blocks = 1};
	alloc_sign(&l);
	char file[PATH_MAX];
	int fd = alloc_create(&l, file);
	if (fd < 0) return OUT_OF_MEMORY;
	return block_new((struct block){.gpu = c->gpu, .fd = fd, .bytes = bytes, .file = strdup(file)}, out);
}

// take holds both locks: no other thread and no other process may take the same room.
int block_take(const struct world *w, int gpu, unsigned long long bytes, bool exported, unsigned long long *out) {
	pthread_mutex_lock(&cuda_lock);
	int guard = alloc_guard();
	struct client *c = client_on(gpu);
	int rc = bytes > room(w, c) ? OUT_OF_MEMORY : exported ? take_export(c, bytes, out) : take_private(w, c, bytes, out);
	if (guard >= 0) close(guard);
	pthread_mutex_unlock(&cuda_lock);
	return rc;
}

static void give_back(struct block *b) {
	struct client *c = client_on(b->gpu);
	if (b->file) drop_shared(b);
	else c->ledger.memory -= b->bytes, c->ledger.blocks--;
	if (b->mapped) c->ledger.mapped -= b->bytes;
	if (!b->file || b->mapped) client_settle(c);
	free(b->kept);
	b->kept = NULL;
	b->bytes = 0;
}

int block_free(unsigned long long handle) {
	pthread_mutex_lock(&cuda_lock);
	struct block *b = block_at(handle);
	bool is = b && b->at == handle;
	if (is) give_back(b);
	pthread_mutex_unlock(&cuda_lock);
	return is ? OK : INVALID_VALUE;
}
