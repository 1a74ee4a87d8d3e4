// libnvidia-ml.so.1: modes, health.
#define _GNU_SOURCE
#include "nvml.h"

#include <stddef.h>
#include <string.h>
#include <time.h>

// Modes

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned *out) {
	ENTER_DEVICE(device);
	*out = (unsigned)world_num(&w, gpu, "persistence", 1);
	return SUCCESS;
}
// An instance, and a card in MIG mode, has none.
EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, unsigned out[2]) {
	ENTER_ANY(device);
	if (instance != WHOLE || world_num(&w, gpu, "mig", 0) == 1) return NOT_SUPPORTED;
	out[0] = (unsigned)world_num(&w, gpu, "busy", 0);
	out[1] = out[0] / 2;
	return SUCCESS;
}
// In MIG mode the instances have one, the card has none.
EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *out) {
	ENTER_ANY(device);
	if (instance == WHOLE && world_num(&w, gpu, "mig", 0) == 1) return NOT_SUPPORTED;
	*out = (unsigned)world_num(&w, gpu, "compute_mode", 0);
	return SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t device, unsigned mode[2]) {
	ENTER_DEVICE(device);
	if (mode[0] != (2 * sizeof *mode | 1u << 24)) return VERSION_MISMATCH;
	mode[1] = (unsigned)world_num(&w, gpu, "addressing_mode", 0);
	return SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, unsigned *out) {
	ENTER_DEVICE(device);
	*out = (unsigned)world_num(&w, gpu, "virtualization_mode", 0);
	return SUCCESS;
}

// Health

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
	ENTER_DEVICE(device);
	*current = *pending = 1;
	return SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int type, int counter,
                                                unsigned long long *out) {
	ENTER_DEVICE(device);
	if (type == 1) *out = (unsigned long long)world_num(&w, gpu, counter == 0 ? "ecc_uncorrected" : "ecc_uncorrected_ever", 0);
	else *out = (unsigned long long)world_num(&w, gpu, "ecc_corrected", 0);
	return SUCCESS;
}

// A card from before Ampere retires pages and remaps no rows: one with the key retired_pages.
static bool retires(const struct world *w, int gpu) { return *world_text(w, gpu, "retired_pages", ""); }

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected,
                                              unsigned *pending, unsigned *failure) {
	ENTER_DEVICE(device);
	if (retires(&w, gpu) || world_num(&w, gpu, "mig", 0) == 1) return NOT_SUPPORTED;
	*corrected = (unsigned)world_num(&w, gpu, "remapped_corrected", 0);
	*uncorrected = (unsigned)world_num(&w, gpu, "remapped_uncorrected", 0);
	*pending = (unsigned)world_num(&w, gpu, "remap_pending", 0);
	*failure = (unsigned)world_num(&w, gpu, "remap_failure", 0);
	return SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned *out) {
	ENTER_DEVICE(device);
	if (!retires(&w, gpu)) return NOT_SUPPORTED;
	*out = (unsigned)world_num(&w, gpu, "retired_pending", 0);
	return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *out) {
	ENTER_DEVICE(device);
	*out = (unsigned long long)world_num(&w, gpu, "clocks_event_reasons", 1);
	return SUCCESS;
}

typedef struct {
	unsigned version;
	unsigned char cluster[16];
	int status;
	unsigned clique;
	unsigned char state;
	unsigned mask;
} nvmlGpuFabricInfo_v2_t;

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v2_t *out) {
	ENTER_DEVICE(device);
	if ((out->version >> 24) != 2) return VERSION_MISMATCH;
	memset(out->cluster, 0, sizeof out->cluster);
	out->status = (int)world_num(&w, gpu, "fabric_status", 0);
	out->clique = 0;
	out->state = (unsigned char)world_num(&w, gpu, "fabric_state", 0);
	out->mask = 0;
	return SUCCESS;
}

typedef struct {
	unsigned field, scope;
	long long timestamp, latency;
	int type, rc;
	union { unsigned ui; unsigned long long ull; long long sll; int si; unsigned short us; } value;
} nvmlFieldValue_t;

static const struct { unsigned field; const char *key; } fields[] = {
	{142, "remapped_corrected"}, {143, "remapped_uncorrected"}, {144, "remap_pending"}, {145, "remap_failure"},
	{230, "recovery_action"},
};

static const char *key_of(unsigned field) {
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
		if (fields[i].field == field) return fields[i].key;
	return NULL;
}

// The keys recovery_action_type and recovery_action_rc give another type than unsigned int, and a failure of the
// field alone. The types: 2 and 3 unsigned of 8 bytes, 4 signed, 5 int, 6 unsigned short.
static void give_field(const struct world *w, int gpu, nvmlFieldValue_t *v, const char *key) {
	long long n = world_num(w, gpu, key, 0);
	bool action = !strcmp(key, "recovery_action");
	v->rc = action ? (int)world_num(w, gpu, "recovery_action_rc", 0) : SUCCESS;
	v->type = action ? (int)world_num(w, gpu, "recovery_action_type", 1) : 1;
	memset(&v->value, 0xee, sizeof v->value); // what is not the value is anything
	if (v->type >= 2 && v->type <= 4) v->value.sll = n;
	else if (v->type == 5) v->value.si = (int)n;
	else if (v->type == 6) v->value.us = (unsigned short)n;
	else v->value.ui = (unsigned)n;
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int n, nvmlFieldValue_t *values) {
	ENTER_DEVICE(device);
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	for (nvmlFieldValue_t *v = values; v < values + n; v++) {
		const char *key = key_of(v->field);
		v->timestamp = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
		if (key) give_field(&w, gpu, v, key);
		else v->rc = NOT_SUPPORTED, v->type = 1;
	}
	return SUCCESS;
}
