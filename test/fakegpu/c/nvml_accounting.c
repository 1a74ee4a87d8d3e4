// libnvidia-ml.so.1: accounting. Found off on the measured machines.
#define _GNU_SOURCE
#include "accounting.h"
#include "nvml.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ACCOUNTED 4000 // the driver's own: 3872 alive and 128 dead
#define MAX_DEAD 128

struct account {
	int n;
	struct accounted all[MAX_ACCOUNTED];
};

static bool runs(const struct usage *u, const struct accounted *a) {
	for (int i = 0; i < u->n; i++)
		if (u->processes[i].pid == a->pid && u->processes[i].start == a->start) return true;
	return false;
}

static void add(struct account *out, struct accounted a) {
	if (out->n < MAX_ACCOUNTED) out->all[out->n++] = a;
}

// Processes that took memory in this world while accounting was on.
static void add_real(const struct world *w, int gpu, struct account *out) {
	static _Thread_local struct usage u;
	char folder[PATH_MAX], path[PATH_MAX + 300];
	world_usage(w, gpu, &u);
	DIR *d = opendir(world_path(folder, "accounting"));
	for (struct dirent *e; d && (e = readdir(d)); ) {
		struct accounted a = {0};
		int card;
		if (sscanf(e->d_name, "%d-%d-%llu", &card, &a.pid, &a.start) != 3 || card != gpu) continue;
		snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
		FILE *f = fopen(path, "re");
		bool read = f && fscanf(f, "%llu %lld %lld", &a.peak, &a.began, &a.last) == 3;
		if (f) fclose(f);
		a.running = runs(&u, &a);
		if (read) add(out, a);
	}
	if (d) closedir(d);
}

// The key accounted = PID:MIB:START_US:MS:RUNNING ... names processes that never were; MIB -1 is "not available".
static void add_invented(const struct world *w, int gpu, struct account *out) {
	const char *p = world_text(w, gpu, "accounted", "");
	long long mib, ms;
	struct accounted a = {0};
	int running, used;
	for (; sscanf(p, " %d:%lld:%lld:%lld:%d%n", &a.pid, &mib, &a.began, &ms, &running, &used) == 5; p += used) {
		a.peak = mib < 0 ? ~0ULL : (unsigned long long)mib * MIB;
		a.last = a.began + ms * 1000;
		a.running = running;
		add(out, a);
	}
}

static int newest_first(const void *a, const void *b) {
	long long x = ((const struct accounted *)a)->began, y = ((const struct accounted *)b)->began;
	return (x < y) - (x > y);
}

// Of a PID that was used again only the newest is kept, and of the dead the newest 128.
static struct account *collect(const struct world *w, int gpu) {
	static _Thread_local struct account all;
	all.n = 0;
	add_real(w, gpu, &all);
	add_invented(w, gpu, &all);
	qsort(all.all, (size_t)all.n, sizeof *all.all, newest_first);
	int kept = 0, dead = 0;
	for (int i = 0; i < all.n; i++) {
		bool again = false;
		for (int k = 0; k < kept; k++) again |= all.all[k].pid == all.all[i].pid;
		if (again || (!all.all[i].running && ++dead > MAX_DEAD)) continue;
		all.all[kept++] = all.all[i];
	}
	all.n = kept;
	return &all;
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, unsigned *out) {
	ENTER_DEVICE(device);
	*out = accounting_on(&w, gpu);
	return SUCCESS;
}
// Real drivers refuse anybody but root; the caller's test does so with a rule.
EXPORT nvmlReturn_t nvmlDeviceSetAccountingMode(nvmlDevice_t device, unsigned mode) {
	ENTER_DEVICE(device);
	if (mode > 1) return INVALID_ARGUMENT;
	return accounting_switch(gpu, mode) ? SUCCESS : UNKNOWN;
}
EXPORT nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned *out) {
	ENTER_DEVICE(device);
	*out = MAX_ACCOUNTED;
	return SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned *n, unsigned *pids) {
	ENTER_DEVICE(device);
	if (!accounting_on(&w, gpu)) return NOT_SUPPORTED;
	const struct account *all = collect(&w, gpu);
	unsigned room = *n;
	*n = (unsigned)all->n;
	if (*n > room) return INSUFFICIENT_SIZE;
	for (unsigned i = 0; i < *n; i++) pids[i] = (unsigned)all->all[i].pid;
	return SUCCESS;
}

typedef struct {
	unsigned gpuUtilization, memoryUtilization;
	unsigned long long maxMemoryUsage, time, startTime;
	unsigned isRunning, reserved[5];
} nvmlAccountingStats_t;

// The time of a process that runs is 0, that of one that was killed ends with its last change here.
EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid, nvmlAccountingStats_t *out) {
	ENTER_DEVICE(device);
	if (!accounting_on(&w, gpu)) return NOT_SUPPORTED;
	const struct account *all = collect(&w, gpu);
	for (const struct accounted *a = all->all; a < all->all + all->n; a++) {
		if ((unsigned)a->pid != pid) continue;
		*out = (nvmlAccountingStats_t){.maxMemoryUsage = a->peak, .startTime = (unsigned long long)a->began,
			.time = a->running ? 0 : (unsigned long long)(a->last - a->began) / 1000, .isRunning = a->running};
		return SUCCESS;
	}
	return NOT_FOUND;
}
