// A HIP library of our own, made from ROCm's documentation: one device for each card of a made-up node, whose memory is
// what the files of that node say. What it is to do else stands in the file "hip" beside it, a line for each:
//
//	sys FOLDER          the node's
//	fails CALL CODE     the call returns this
//	hangs CALL          it never returns
//	largest BYTES       no block is larger
//
// It writes each call to the file "calls" beside it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { INVALID_DEVICE = 101, OUT_OF_MEMORY = 2, MOST = 16 };

static char beside[4000], sys[4000], buses[MOST][32];
static int devices;

struct block { int device; unsigned long long bytes; };
struct properties { int type, handle; struct { int type, id; } location; void *windows; unsigned char flags[4]; };

static char *path(const char *name) {
	static char text[8100];
	if (!*beside) {
		Dl_info info;
		if (!dladdr(path, &info)) abort();
		snprintf(beside, sizeof beside, "%s", info.dli_fname);
		*strrchr(beside, '/') = 0;
	}
	snprintf(text, sizeof text, "%s/%s", beside, name);
	return text;
}

static void said(const char *form, ...) {
	FILE *f = fopen(path("calls"), "a");
	if (!f) abort();
	va_list args;
	va_start(args, form);
	vfprintf(f, form, args);
	va_end(args);
	fputc('\n', f);
	fclose(f);
}

// told looks a key up, with what may follow it, and returns whether it stands in the file.
static int told(const char *key, const char *of, char *value) {
	char line[4200], begin[200];
	snprintf(begin, sizeof begin, "%s %s%s", key, of, *of ? " " : "");
	FILE *f = fopen(path("hip"), "r");
	int found = 0;
	while (f && !found && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = ' ';
		if ((found = !strncmp(line, begin, strlen(begin))) && value) sscanf(line + strlen(begin), "%3999s", value);
	}
	if (f) fclose(f);
	return found;
}

static int does(const char *call) {
	char code[4000] = "0";
	said("%s", call);
	if (told("hangs", call, NULL))
		for (;;) pause();
	told("fails", call, code);
	return atoi(code);
}

// memory reads or writes a figure of a card's.
static unsigned long long memory(int device, const char *what, unsigned long long *now) {
	char name[8200];
	unsigned long long n = 0;
	snprintf(name, sizeof name, "%s/bus/pci/devices/%s/mem_info_vram_%s", sys, buses[device], what);
	FILE *f = fopen(name, now ? "w" : "r");
	if (!f || (now ? fprintf(f, "%llu\n", *now) : fscanf(f, "%llu", &n)) < 1) abort();
	fclose(f);
	return n;
}

EXPORT int hipInit(unsigned flags) {
	if (flags || !told("sys", "", sys)) abort();
	const char *visible = getenv("ROCR_VISIBLE_DEVICES");
	said("visible %s", visible ? visible : "all");
	return does("hipInit");
}

EXPORT const char *hipGetErrorName(int code) { return code == 999 ? "hipErrorUnknown" : "hipErrorOther"; }

EXPORT int hipDeviceGetByPCIBusId(int *device, const char *bus) {
	int code = does("hipDeviceGetByPCIBusId");
	if (code) return code;
	if (devices == MOST) return INVALID_DEVICE;
	snprintf(buses[devices], sizeof buses[0], "%s", bus);
	*device = devices++;
	return 0;
}

EXPORT int hipMemGetAllocationGranularity(size_t *bytes, const struct properties *p, int which) {
	if (p->type != 1 || p->location.type != 1 || which) return 1;
	*bytes = 2 << 20;
	return does("hipMemGetAllocationGranularity");
}

EXPORT int hipMemCreate(void **handle, size_t bytes, const struct properties *p, unsigned long long flags) {
	int d = p->location.id, code = does("hipMemCreate");
	if (code) return code;
	if (p->type != 1 || p->handle || p->location.type != 1 || d >= devices || flags || bytes % (2 << 20)) return 1;
	char largest[4000] = "18446744073709551615";
	told("largest", "", largest);
	unsigned long long used = memory(d, "used", NULL);
	if (bytes > strtoull(largest, NULL, 10) || bytes > memory(d, "total", NULL) - used) return OUT_OF_MEMORY;
	struct block *b = malloc(sizeof *b);
	*b = (struct block){d, bytes};
	used += bytes;
	memory(d, "used", &used);
	*handle = b;
	return 0;
}

EXPORT int hipMemRelease(void *handle) {
	struct block *b = handle;
	int code = does("hipMemRelease");
	if (code) return code;
	unsigned long long used = memory(b->device, "used", NULL) - b->bytes;
	memory(b->device, "used", &used);
	free(b);
	return 0;
}
