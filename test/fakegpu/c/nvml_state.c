// libnvidia-ml.so.1: modes, health, accounting.
#define _GNU_SOURCE
#include "nvml.h"

#include <time.h>

// Modes

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned *out) {
	ENTER_DEVICE(device);
	*out = (unsigned)world_num(&w, gpu, "persistence", 1);
	return SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *out) {
	ENTER_DEVICE(device);
	*out = (unsigned)world_num(&w, gpu, "compute_mode", 0);
	return SUCCESS;
}
#ifndef OLD_DRIVER
EXPORT nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t device, unsigned mode[2]) {
	ENTER_DEVICE(device);
	if (mode[0] != (2 * sizeof *mode | 1u << 24)) return VERSION_MISMATCH;
	mode[1] = (unsigned)world_num(&w, gpu, "addressing_mode", 0);
	return SUCCESS;
}
#endif
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
	(void)counter;
	*out = (unsigned long long)world_num(&w, gpu, type == 1 ? "ecc_uncorrected" : "ecc_corrected", 0);
	return SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected,
                                              unsigned *pending, unsigned *failure) {
	ENTER_DEVICE(device);
	*corrected = (unsigned)world_num(&w, gpu, "remapped_corrected", 0);
	*uncorrected = (unsigned)world_num(&w, gpu, "remapped_uncorrected", 0);
	*pending = (unsigned)world_num(&w, gpu, "remap_pending", 0);
	*failure = (unsigned)world_num(&w, gpu, "remap_failure", 0);
	return SUCCESS;
}
// Retired pages ended with Ampere.
EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, int cause, unsigned *n, unsigned long long *pages) {
	ENTER_DEVICE(device);
	(void)cause, (void)n, (void)pages;
	return NOT_SUPPORTED;
}
EXPORT nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned *out) {
	ENTER_DEVICE(device);
	(void)out;
	return NOT_SUPPORTED;
}

typedef struct {
	unsigned field, scope;
	long long timestamp, latency;
	int type, rc;
	union { unsigned ui; unsigned long long ull; } value;
} nvmlFieldValue_t;

static const struct { unsigned field; const char *key; } fields[] = {
	{142, "remapped_corrected"}, {143, "remapped_uncorrected"}, {144, "remap_pending"}, {145, "remap_failure"},
	{230, "recovery_action"},
};

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int n, nvmlFieldValue_t *values) {
	ENTER_DEVICE(device);
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	for (nvmlFieldValue_t *v = values; v < values + n; v++) {
		v->rc = NOT_SUPPORTED;
		v->timestamp = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
		v->type = 1; // unsigned int
		for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
			if (fields[i].field != v->field) continue;
			v->rc = SUCCESS;
			v->value.ull = 0;
			v->value.ui = (unsigned)world_num(&w, gpu, fields[i].key, 0);
		}
	}
	return SUCCESS;
}

// Accounting: found off on the measured machines, and it stays off here.

EXPORT nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, unsigned *out) {
	ENTER_DEVICE(device);
	*out = 0;
	return SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceSetAccountingMode(nvmlDevice_t device, unsigned mode) {
	ENTER_DEVICE(device);
	return mode ? NOT_SUPPORTED : SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned *out) {
	ENTER_DEVICE(device);
	*out = 4000;
	return SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned *n, unsigned *pids) {
	ENTER_DEVICE(device);
	(void)pids;
	*n = 0;
	return SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid, void *stats) {
	ENTER_DEVICE(device);
	(void)pid, (void)stats;
	return NOT_FOUND;
}
