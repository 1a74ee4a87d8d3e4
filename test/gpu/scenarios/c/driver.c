// The calls of the CUDA driver, by dlopen and own prototypes: no toolkit to build or to run.
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <string.h>

struct driver cu;

void load_driver(void) {
	void *lib = dlopen(vendor_library(), RTLD_NOW | RTLD_LOCAL);
	if (!lib) die("load the driver: %s", dlerror());
	const struct { void *slot; const char *name, *older; } wanted[] = {
		{&cu.init, "cuInit", NULL}, {&cu.get, "cuDeviceGet", NULL}, {&cu.uuid, "cuDeviceGetUuid_v2", "cuDeviceGetUuid"},
		{&cu.total, "cuDeviceTotalMem_v2", NULL}, {&cu.retain, "cuDevicePrimaryCtxRetain", NULL},
		{&cu.current, "cuCtxSetCurrent", NULL}, {&cu.info, "cuMemGetInfo_v2", NULL}, {&cu.alloc, "cuMemAlloc_v2", NULL},
		{&cu.free, "cuMemFree_v2", NULL},
		{&cu.set, "cuMemsetD8_v2", NULL}, {&cu.read, "cuMemcpyDtoH_v2", NULL}, {&cu.create, "cuMemCreate", NULL},
		{&cu.release, "cuMemRelease", NULL}, {&cu.share, "cuMemExportToShareableHandle", NULL},
		{&cu.ipc_get, "cuIpcGetMemHandle", NULL}, {&cu.ipc_open, "cuIpcOpenMemHandle_v2", "cuIpcOpenMemHandle"},
		{&cu.name, "cuGetErrorName", NULL},
	};
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		void *f = dlsym(lib, wanted[i].name);
		if (!f && wanted[i].older) f = dlsym(lib, wanted[i].older);
		if (!f) die("the driver lacks %s", wanted[i].name);
		memcpy(wanted[i].slot, &f, sizeof f);
	}
}

void check(int rc, const char *call) {
	const char *name = NULL;
	if (rc == 0) return;
	cu.name(rc, &name);
	die("%s: %d %s", call, rc, name ? name : "?");
}

void announce(int device, unsigned long long bytes, bool context) {
	unsigned char id[16];
	check(cu.uuid(id, device), "cuDeviceGetUuid");
	say(" gpu=GPU-");
	for (int i = 0; i < 16; i++) say(i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", id[i]);
	say(" bytes=%llu", bytes);
	if (!context) return;
	size_t left = 0, total = 0;
	check(cu.info(&left, &total), "cuMemGetInfo");
	say(" used=%zu", total - left);
}
