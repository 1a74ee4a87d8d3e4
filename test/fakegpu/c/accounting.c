// The driver's accounting: the most memory that each process ever held. A driver takes this down itself; here each
// process does it for itself, so that it stays when the process is killed.
#define _GNU_SOURCE
#include "accounting.h"

#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static char *mode_file(char out[PATH_MAX], int gpu) {
	char name[64];
	snprintf(name, sizeof name, "accounting/.mode-%d", gpu);
	return world_path(out, name);
}

bool accounting_on(const struct world *w, int gpu) {
	char path[PATH_MAX];
	if (world_num(w, gpu, "mig", 0) == 1) return false;
	int mode = (int)world_num(w, gpu, "accounting_mode", 0);
	FILE *f = fopen(mode_file(path, gpu), "re");
	if (f && fscanf(f, "%d", &mode) != 1) mode = 0;
	if (f) fclose(f);
	return mode == 1;
}

static bool write_to(const char *path, const char *how, const char *text) {
	FILE *f = fopen(path, how);
	bool ok = f && fputs(text, f) >= 0;
	return f && fclose(f) == 0 && ok;
}

bool accounting_switch(int gpu, unsigned mode) {
	char path[PATH_MAX], text[64];
	snprintf(text, sizeof text, "%d %u\n", gpu, mode);
	if (!write_to(world_path(path, "accounting/.switches"), "ae", text)) return false;
	snprintf(text, sizeof text, "%u\n", mode);
	return write_to(mode_file(path, gpu), "we", text);
}

// figure is what the driver would list for this process; false where it lists none.
static bool figure(const struct world *w, const struct ledger *l, unsigned long long *bytes) {
	static _Thread_local struct usage u;
	world_usage(w, l->gpu, &u);
	for (int i = 0; i < u.n; i++) {
		if (u.processes[i].pid != l->pid || u.processes[i].start != l->start) continue;
		*bytes = u.processes[i].bytes;
		return true;
	}
	return false;
}

static long long now_us(void) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

void accounting_note(const struct ledger *l) {
	static _Thread_local struct world w;
	struct ledger self;
	unsigned long long bytes, peak = 0;
	long long began, now = now_us();
	world_load(&w);
	if (!accounting_on(&w, l->gpu)) return;
	alloc_sign(&self); // the keeper writes others' ledgers too
	if (self.pid != l->pid || self.start != l->start || !figure(&w, l, &bytes)) return;
	char path[PATH_MAX], fresh[PATH_MAX], name[96], text[128];
	snprintf(name, sizeof name, "accounting/%d-%d-%llu", l->gpu, l->pid, l->start);
	world_path(path, name);
	FILE *f = fopen(path, "re");
	if (!f || fscanf(f, "%llu %lld", &peak, &began) != 2) began = now;
	if (f) fclose(f);
	snprintf(text, sizeof text, "%llu %lld %lld\n", bytes > peak ? bytes : peak, began, now);
	snprintf(name, sizeof name, "accounting/.new-%d-%d", l->gpu, l->pid);
	if (!write_to(world_path(fresh, name), "we", text) || rename(fresh, path)) perror("fakegpu: accounting");
}
