// Watching a card's memory through NVML, by own prototypes.
#define _GNU_SOURCE
#include "job.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define POLL 200000 // ns between two looks

typedef struct {
	unsigned version;
	unsigned long long total, reserved, free, used;
} Memory;

static struct {
	int (*init)(void), (*find)(const char *, void **), (*memory)(void *, Memory *);
} nvml;

static void load(void) {
	void *lib = dlopen(vendor_nvml(), RTLD_NOW | RTLD_LOCAL);
	if (!lib) die("load NVML: %s", dlerror());
	const struct { void *slot; const char *name; } wanted[] = {
		{&nvml.init, "nvmlInit_v2"}, {&nvml.find, "nvmlDeviceGetHandleByUUID"}, {&nvml.memory, "nvmlDeviceGetMemoryInfo_v2"},
	};
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		void *f = dlsym(lib, wanted[i].name);
		if (!f) die("NVML lacks %s", wanted[i].name);
		memcpy(wanted[i].slot, &f, sizeof f);
	}
}

static unsigned long long used(void *card) {
	Memory m = {.version = sizeof m | 2u << 24};
	int rc = nvml.memory(card, &m);
	if (rc) die("nvmlDeviceGetMemoryInfo_v2: %d", rc);
	return m.used;
}

// await returns once the card's use is above the limit, or no longer is, and says how many ms after the last line.
static void await(void *card, bool above) {
	unsigned long long limit = above ? flags.mib * MIB : 0, bytes;
	double began = clock_ms();
	while (bytes = used(card), above ? bytes <= limit : bytes > limit)
		nanosleep(&(struct timespec){.tv_nsec = POLL}, NULL);
	dprintf(1, "%s used=%llu after_ms=%.1f\n", above ? "taken" : "empty", bytes, clock_ms() - began);
}

static void *find_card(const char *uuid) {
	void *card = NULL;
	load();
	int rc = nvml.init();
	if (rc == 0) rc = nvml.find(uuid, &card);
	if (rc) die("find card %s: %d", uuid, rc);
	return card;
}

void watch_memory(const char *uuid) {
	void *card = find_card(uuid);
	for (bool above = false;; above = !above) await(card, above);
}

void watch_highest(const char *uuid) {
	void *card = find_card(uuid);
	unsigned long long bytes = used(card), most = bytes;
	dprintf(1, "highest used=%llu\n", most);
	for (;; bytes = used(card)) {
		if (bytes > most) dprintf(1, "highest used=%llu\n", most = bytes);
		nanosleep(&(struct timespec){.tv_nsec = POLL}, NULL);
	}
}
