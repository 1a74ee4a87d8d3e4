// The fake GPU vendor's world: one folder that holds the libraries, the programs, world.conf (what the cards are
// and how the driver behaves) and alloc/ (the driver's bookkeeping: one file per holder of memory).
//
// A file in alloc/ counts while somebody holds the open file description that locked it. The kernel keeps that
// reference exactly as it keeps a driver's: over fork, over SCM_RIGHTS, until the last close, never over exec.
// F_OFD_GETLK asks for the lock without taking it, so that any number of readers may look at once.
#ifndef FAKEGPU_WORLD_H
#define FAKEGPU_WORLD_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define MIB (1024ULL * 1024)
#define MAX_GPUS 64
#define MAX_LISTED 1024 // the driver's own table has 950
#define MAX_KEYS 4096
#define ANY_GPU (-1)

// A world.conf read into memory: key = value lines. GPUs are numbered in PCI order, excluded ones included.
struct world {
	const struct conf *conf;
};

// world_dir is the folder of the library or program this code was linked into.
const char *world_dir(void);
// world_path writes the path of a name below the world into out and returns out.
char *world_path(char out[PATH_MAX], const char *name);
// world_load reads world.conf anew; a world without it cannot be used, so the process ends (status 97).
void world_load(struct world *w);
// The value of "key", or of "gpuN.key"; fallback where it is not set.
const char *world_text(const struct world *w, int gpu, const char *key, const char *fallback);
long long world_num(const struct world *w, int gpu, const char *key, long long fallback);
int world_cards(const struct world *w);
// world_card returns the card at an index that counts only cards the driver serves, or -1.
int world_card(const struct world *w, int index);

// MIG instances: a card in MIG mode has those whose gpuN.migI_mib is set.
#define WHOLE (-1)
#define MAX_INSTANCES 7
bool mig_exists(const struct world *w, int gpu, int instance);
const char *mig_text(const struct world *w, int gpu, int instance, const char *key, const char *fallback);
long long mig_num(const struct world *w, int gpu, int instance, const char *key, long long fallback);

// How often one function was called in this process, for each card and (slot 0) without one.
typedef atomic_int calls_t[MAX_GPUS + 1];
// world_act does what world.conf's rule "on.FUNCTION[.gpuN]" or "on.any.gpuN" says: blocks, sleeps, crashes, or
// returns the code to fail with. -1: go on.
int world_act(const struct world *w, const char *function, int gpu, calls_t calls);
void world_nap(long long ms);

// What one file of alloc/ says. A client is one process on one card; its context is what makes the driver list
// it. An export is memory that has left its client and belongs to whoever holds its descriptor; what is shared by
// CUDA IPC belongs to all who hold a descriptor of its file, each with an open of its own.
struct ledger {
	unsigned long long seq;
	int pid;
	unsigned long long start; // field 22 of /proc/PID/stat
	int gpu;
	char list[16];                               // client: compute, graphics or mps; export: "-"; or SHARED
	unsigned long long context, hidden, memory; // bytes; hidden: used, but in no process's figure
	unsigned long long mapped;                  // in this process's figure, but another file's memory
	unsigned long long blocks;
	int low; // the keeper's: teardown shows only LOW_BYTES just now
};
#define LOW_BYTES (512 * MIB)
#define SHARED "shared"

// alloc_sign names this process as the creator.
void alloc_sign(struct ledger *l);
// alloc_create makes a locked file for l and returns its descriptor, or -1. file gets its path.
int alloc_create(const struct ledger *l, char file[PATH_MAX]);
bool alloc_write(int fd, struct ledger *l);
// alloc_read fills l from a file's text; false if it is none.
bool alloc_read(int fd, struct ledger *l);
bool alloc_locked(int fd);
// alloc_share adds this descriptor to those that hold a SHARED file; false if nobody holds it any more.
bool alloc_share(int fd);
// alloc_guard serialises "is there room" with "take it"; close the descriptor to let go.
int alloc_guard(void);

struct listed {
	int pid;
	unsigned long long start, bytes;
	char list[16];
};
// What is on one card now.
struct usage {
	unsigned long long total, reserved, used, free;
	int n;
	struct listed processes[MAX_LISTED];
};
void world_usage(const struct world *w, int gpu, struct usage *u);

#endif
