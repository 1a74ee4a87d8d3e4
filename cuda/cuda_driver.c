#define _GNU_SOURCE
#include "cuda_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What an allocation is to be: pinned memory of one card, not to be shared.
typedef struct {
	int type, handle_types;
	struct { int type, id; } location;
	void *windows;
	unsigned char flags[8];
} properties;

static struct {
	int (*init)(unsigned), (*name)(int, const char **);
	int (*get)(int *, int), (*by_bus)(int *, const char *), (*uuid)(unsigned char *, int), (*attribute)(int *, int, int);
	int (*granularity)(size_t *, const properties *, int);
	int (*create)(unsigned long long *, size_t, const properties *, unsigned long long), (*release)(unsigned long long);
	int (*retain)(void **, int), (*leave)(int), (*enter)(void *), (*info)(size_t *, size_t *);
	int (*alloc)(unsigned long long *, size_t), (*free)(unsigned long long);
} driver;

static const struct { void *slot; const char *name, *older; } wanted[] = {
	{&driver.init, "cuInit", NULL}, {&driver.name, "cuGetErrorName", NULL},
	{&driver.get, "cuDeviceGet", NULL}, {&driver.by_bus, "cuDeviceGetByPCIBusId", NULL},
	{&driver.uuid, "cuDeviceGetUuid_v2", "cuDeviceGetUuid"}, {&driver.attribute, "cuDeviceGetAttribute", NULL},
	{&driver.granularity, "cuMemGetAllocationGranularity", NULL},
	{&driver.create, "cuMemCreate", NULL}, {&driver.release, "cuMemRelease", NULL},
	{&driver.retain, "cuDevicePrimaryCtxRetain", NULL},
	{&driver.leave, "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease"},
	{&driver.enter, "cuCtxSetCurrent", NULL}, {&driver.info, "cuMemGetInfo_v2", NULL},
	{&driver.alloc, "cuMemAlloc_v2", NULL}, {&driver.free, "cuMemFree_v2", NULL},
};

int cuda_environment(const char *visible, const char *empty) {
	if (clearenv()) return -1;
	// The order does not matter to a search by bus id; it keeps to the driver tools' own.
	if (setenv("CUDA_VISIBLE_DEVICES", visible, 1) || setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1)) return -1;
	// No daemon is found in an empty folder. Without this the driver looks for one in a place that anybody may make.
	if (setenv("CUDA_MPS_PIPE_DIRECTORY", empty, 1)) return -1;
	return setenv("CUDA_CACHE_DISABLE", "1", 1);
}

int cuda_load(const char *path, char *why, size_t room) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		const char *words = dlerror();
		snprintf(why, room, "%s", words ? words : "");
		return CUDA_LACKS;
	}
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		void *f = dlsym(library, wanted[i].name);
		if (!f && wanted[i].older) f = dlsym(library, wanted[i].older);
		memcpy(wanted[i].slot, &f, sizeof f);
	}
	return 0;
}

int cuda_init(void) { return driver.init ? driver.init(0) : CUDA_LACKS; }

const char *cuda_name(int code) {
	const char *name = NULL;
	return driver.name && driver.name(code, &name) == 0 ? name : NULL;
}

int cuda_first(int *device) { return driver.get ? driver.get(device, 0) : CUDA_LACKS; }
int cuda_by_bus(const char *bus, int *device) { return driver.by_bus ? driver.by_bus(device, bus) : CUDA_LACKS; }
int cuda_uuid(int device, unsigned char uuid[16]) { return driver.uuid ? driver.uuid(uuid, device) : CUDA_LACKS; }

int cuda_virtual(int device, int *can) {
	enum { VIRTUAL_MEMORY_MANAGEMENT = 102 };
	*can = 0;
	if (!driver.granularity || !driver.create || !driver.release) return 0;
	return driver.attribute ? driver.attribute(can, VIRTUAL_MEMORY_MANAGEMENT, device) : CUDA_LACKS;
}

static properties memory_of(int device) {
	enum { PINNED = 1, DEVICE = 1 };
	properties p;
	memset(&p, 0, sizeof p);
	p.type = PINNED;
	p.location.type = DEVICE;
	p.location.id = device;
	return p;
}

int cuda_granularity(int device, size_t *bytes) {
	enum { MINIMUM = 0 };
	properties p = memory_of(device);
	return driver.granularity ? driver.granularity(bytes, &p, MINIMUM) : CUDA_LACKS;
}

int cuda_create(int device, size_t bytes, unsigned long long *handle) {
	properties p = memory_of(device);
	return driver.create ? driver.create(handle, bytes, &p, 0) : CUDA_LACKS;
}

int cuda_release(unsigned long long handle) { return driver.release ? driver.release(handle) : CUDA_LACKS; }

int cuda_retain(int device, void **context) { return driver.retain ? driver.retain(context, device) : CUDA_LACKS; }
int cuda_enter(void *context) { return driver.enter ? driver.enter(context) : CUDA_LACKS; }

int cuda_info(size_t *free) {
	size_t total;
	return driver.info ? driver.info(free, &total) : CUDA_LACKS;
}

int cuda_alloc(size_t bytes, unsigned long long *address) { return driver.alloc ? driver.alloc(address, bytes) : CUDA_LACKS; }
int cuda_free(unsigned long long address) { return driver.free ? driver.free(address) : CUDA_LACKS; }
int cuda_leave(int device) { return driver.leave ? driver.leave(device) : CUDA_LACKS; }
