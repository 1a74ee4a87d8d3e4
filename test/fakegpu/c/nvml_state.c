// libnvidia-ml.so.1: modes, health.
#define _GNU_SOURCE
#include "nvml.h"

#include <string.h>

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
// Asked by releases before 1.1: it is off, as drivers ship it.
EXPORT nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, unsigned *out) {
	ENTER_DEVICE(device);
	*out = 0;
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

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int type, int counter,
                                                unsigned long long *out) {
	ENTER_DEVICE(device);
	if (type == 1) *out = (unsigned long long)world_num(&w, gpu, counter == 0 ? "ecc_uncorrected" : "ecc_uncorrected_ever", 0);
	else *out = (unsigned long long)world_num(&w, gpu, "ecc_corrected", 0);
	return SUCCESS;
}

// What identifies a card; an empty key: not supported.
static nvmlReturn_t identity(const struct world *w, int gpu, const char *key, char *out, unsigned room) {
	const char *text = world_text(w, gpu, key, "");
	if (!*text) return NOT_SUPPORTED;
	strncpy(out, text, room - 1);
	out[room - 1] = 0;
	return SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *out, unsigned room) {
	ENTER_DEVICE(device);
	return identity(&w, gpu, "serial", out, room);
}
EXPORT nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char *out, unsigned room) {
	ENTER_DEVICE(device);
	return identity(&w, gpu, "part_number", out, room);
}
EXPORT nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *out, unsigned room) {
	ENTER_DEVICE(device);
	return identity(&w, gpu, "vbios", out, room);
}
EXPORT nvmlReturn_t nvmlDeviceGetInforomImageVersion(nvmlDevice_t device, char *out, unsigned room) {
	ENTER_DEVICE(device);
	return identity(&w, gpu, "inforom", out, room);
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
	union { unsigned ui; unsigned long long ull; } value;
} nvmlFieldValue_t;

// The keys recovery_action_type and recovery_action_rc give another type than unsigned int, and a failure of the
// field alone.
EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int n, nvmlFieldValue_t *values) {
	enum { RECOVERY_ACTION = 230, UNSIGNED_INT = 1 };
	ENTER_DEVICE(device);
	for (nvmlFieldValue_t *v = values; v < values + n; v++) {
		long long action = world_num(&w, gpu, "recovery_action", 0);
		v->rc = v->field == RECOVERY_ACTION ? (int)world_num(&w, gpu, "recovery_action_rc", 0) : NOT_SUPPORTED;
		v->type = (int)world_num(&w, gpu, "recovery_action_type", UNSIGNED_INT);
		memset(&v->value, 0xee, sizeof v->value); // what is not the value is anything
		if (v->type == UNSIGNED_INT) v->value.ui = (unsigned)action;
		else v->value.ull = (unsigned long long)action;
	}
	return SUCCESS;
}
