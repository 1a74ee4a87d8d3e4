// libnvidia-ml.so.1 of the fake vendor: the calls a memory snapshot needs, with the real structures' layout.
// This file: the library's life, the system, which card.
#define _GNU_SOURCE
#include "nvml.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static atomic_bool initialised;

static const char *const texts[] = {
	"Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
	"Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
	"Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
	"Corrupted infoROM", "GPU is lost", "GPU requires restart", "The operating system has blocked the request.",
	"RM has detected an NVML/RM version mismatch.", "Insufficient Memory",
};

EXPORT const char *nvmlErrorString(nvmlReturn_t rc) {
	return rc >= 0 && rc < (int)(sizeof texts / sizeof *texts) ? texts[rc] : "Unknown Error";
}

nvmlDevice_t nvml_handle(int gpu, int instance) {
	return (nvmlDevice_t)((uintptr_t)(gpu + 1) | (uintptr_t)(instance + 1) << 8);
}
int nvml_card_of(nvmlDevice_t device) {
	uintptr_t card = (uintptr_t)device & 0xff, instance = (uintptr_t)device >> 8;
	return card >= 1 && card <= MAX_GPUS && instance <= MAX_INSTANCES ? (int)card - 1 : ANY_GPU;
}
int nvml_instance(nvmlDevice_t device) { return (int)((uintptr_t)device >> 8) - 1; }
int nvml_card(nvmlDevice_t device) { return nvml_instance(device) == WHOLE ? nvml_card_of(device) : ANY_GPU; }

int nvml_enter(const struct world *w, const char *function, int gpu, calls_t calls) {
	if (!initialised) return UNINITIALIZED;
	return world_act(w, function, gpu, calls);
}

static int put(char *out, unsigned length, const char *text) {
	if (strlen(text) >= length) return INSUFFICIENT_SIZE;
	strcpy(out, text);
	return SUCCESS;
}

// Life of the library

EXPORT nvmlReturn_t nvmlInit_v2(void) {
	static calls_t calls;
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER; // a second thread waits for the first, and then only counts
	struct world w;
	world_load(&w);
	pthread_mutex_lock(&one);
	int rc = initialised ? 0 : world_act(&w, __func__, ANY_GPU, calls);
	initialised = rc <= 0;
	pthread_mutex_unlock(&one);
	return rc > 0 ? rc : SUCCESS;
}

// The system

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned length) {
	ENTER(ANY_GPU);
	return put(out, length, world_text(&w, ANY_GPU, "driver_version", ""));
}
EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned length) {
	ENTER(ANY_GPU);
	return put(out, length, world_text(&w, ANY_GPU, "nvml_version", ""));
}

// Which card

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *out) {
	ENTER(ANY_GPU);
	unsigned n = 0;
	while (world_card(&w, (int)n) >= 0) n++;
	*out = n;
	return SUCCESS;
}

static int handle(const struct world *w, const char *function, int gpu, calls_t calls, nvmlDevice_t *out) {
	bool there = gpu >= 0 && !world_num(w, gpu, "excluded", 0);
	int rc = nvml_enter(w, function, there ? gpu : ANY_GPU, calls);
	if (rc > 0) return rc;
	if (!there) return NOT_FOUND;
	*out = nvml_handle(gpu, WHOLE);
	return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out) {
	WORLD;
	int gpu = index < MAX_GPUS ? world_card(&w, (int)index) : -1;
	int rc = handle(&w, __func__, gpu, calls, out);
	return rc == NOT_FOUND && gpu < 0 ? INVALID_ARGUMENT : rc;
}

static bool bus(const char *text, unsigned n[4]) {
	return text && sscanf(text, "%x:%x:%x.%x", &n[0], &n[1], &n[2], &n[3]) == 4;
}
static int card_at(const struct world *w, const char *text) {
	unsigned want[4], have[4];
	if (!bus(text, want)) return -1;
	for (int gpu = 0; gpu < world_cards(w); gpu++)
		if (bus(world_text(w, gpu, "bus", ""), have) && !memcmp(want, have, sizeof want)) return gpu;
	return -1;
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *out) {
	WORLD;
	return handle(&w, __func__, card_at(&w, id), calls, out);
}
static int card_named(const struct world *w, const char *uuid) {
	for (int gpu = 0; uuid && gpu < world_cards(w); gpu++)
		if (!strcmp(world_text(w, gpu, "uuid", ""), uuid)) return gpu;
	return -1;
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out) {
	WORLD;
	nvmlDevice_t instance = mig_named(&w, uuid);
	int rc = handle(&w, __func__, instance ? nvml_card_of(instance) : card_named(&w, uuid), calls, out);
	if (rc == SUCCESS && instance) *out = instance;
	return rc;
}

// What it is

typedef struct {
	char busIdLegacy[16];
	unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
	char busId[32];
} nvmlPciInfo_t;

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out) {
	ENTER_DEVICE(device);
	unsigned n[4] = {0};
	bus(world_text(&w, gpu, "bus", ""), n);
	memset(out, 0, sizeof *out);
	out->domain = n[0], out->bus = n[1], out->device = n[2];
	out->pciDeviceId = 0x233510de, out->pciSubSystemId = 0x18be10de; // H200 SXM
	snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04X:%02X:%02X.0", n[0] & 0xffff, n[1] & 0xff, n[2] & 0x1f);
	snprintf(out->busId, sizeof out->busId, "%08X:%02X:%02X.0", n[0], n[1], n[2]);
	return SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned length) {
	ENTER_ANY(device);
	if (instance != WHOLE) return put(out, length, mig_text(&w, gpu, instance, "uuid", ""));
	return put(out, length, world_text(&w, gpu, "uuid", ""));
}
EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned length) {
	ENTER_ANY(device);
	char name[96];
	snprintf(name, sizeof name, "%s%s", world_text(&w, gpu, "name", ""), instance == WHOLE ? "" : " MIG 1g.18gb");
	return put(out, length, name);
}
EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *out) {
	ENTER_DEVICE(device);
	*out = (unsigned)world_num(&w, gpu, "minor", gpu);
	return SUCCESS;
}
