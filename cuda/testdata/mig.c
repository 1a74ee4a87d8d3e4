// A driver's library with one card cut into two MIG instances, and the oddities that come with it: a hole
// between the instances, a process in both, a list longer than its first offer, memory that is not available.
#include <string.h>

typedef const char *device; // a handle is the device's UUID

static const char card[] = "GPU-1", first[] = "MIG-1", second[] = "MIG-2";

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

int nvmlInit_v2(void) { return SUCCESS; }
const char *nvmlErrorString(int rc) { return rc == NOT_FOUND ? "Not Found" : "Not Supported"; }

int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 1, SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, device *d) { return i ? INVALID_ARGUMENT : (*d = card, SUCCESS); }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, device *d) {
	return strcmp(bus, "0000:1b:00.0") ? NOT_FOUND : (*d = card, SUCCESS);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, device *d) {
	const char *all[] = {card, first, second};
	for (int i = 0; i < 3; i++)
		if (!strcmp(uuid, all[i])) return *d = all[i], SUCCESS;
	return NOT_FOUND;
}

int nvmlDeviceGetUUID(device d, char *out, unsigned n) { return strncpy(out, d, n), SUCCESS; }
int nvmlDeviceGetName(device d, char *out, unsigned n) {
	return strncpy(out, d == card ? "H200" : "H200 MIG 3g.71gb", n), SUCCESS;
}
int nvmlDeviceGetPciInfo_v3(device d, struct { char legacy[16]; unsigned numbers[5]; char bus[32]; } *pci) {
	return d == card ? strcpy(pci->bus, "00000000:1B:00.0"), SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetMigMode(device d, unsigned *now, unsigned *next) { return (void)d, *now = *next = 1, SUCCESS; }
int nvmlDeviceGetMaxMigDeviceCount(device d, unsigned *n) { return (void)d, *n = 7, SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(device d, unsigned i, device *instance) {
	if (d != card || (i != 0 && i != 2)) return NOT_FOUND;
	return *instance = i ? second : first, SUCCESS;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device d, device *parent) {
	return d == card ? NOT_FOUND : (*parent = card, SUCCESS);
}

int nvmlDeviceGetMemoryInfo_v2(device d, struct { unsigned version; unsigned long long total, reserved, free, used; } *m) {
	m->total = d == card ? 200 : 100, m->reserved = 1, m->used = 10, m->free = m->total - 11;
	return SUCCESS;
}

struct process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };

// The card lists process 9 in both instances. The second instance alone lists so many that it outgrows an offer.
int nvmlDeviceGetComputeRunningProcesses_v3(device d, unsigned *count, struct process *p) {
	unsigned room = *count;
	*count = d == second ? 1500 : 2;
	if (room < *count) return INSUFFICIENT_SIZE;
	if (d == second)
		for (unsigned i = 0; i < *count; i++) p[i] = (struct process){i + 1, 1, 2, 0};
	else if (d == first)
		p[0] = (struct process){9, 4, 1, 0}, p[1] = (struct process){10, ~0ULL, 1, 0};
	else
		p[0] = (struct process){9, 4, 1, 0}, p[1] = (struct process){9, 6, 2, 0};
	return SUCCESS;
}
