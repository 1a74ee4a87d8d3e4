// The calls of the CUDA driver that a test allocation needs, by dlopen and own prototypes: nothing of a toolkit is
// needed to build or to run. Each returns the driver's code, 0 for success. All is static: the vendor's libraries see
// every name that this program exports.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The driver has no such function.
#define CUDA_LACKS (-1) 
#define CALL(function, ...) (driver.function ? driver.function(__VA_ARGS__) : CUDA_LACKS)

// What an allocation is to be: pinned memory of one card, not to be shared.
typedef struct {
	int type, handle_types;
	struct { int type, id; } location;
	void *windows;
	unsigned char flags[8];
} properties;

static struct {
	int (*init)(unsigned), (*name)(int, const char **);
	int (*by_bus)(int *, const char *), (*uuid)(unsigned char *, int), (*attribute)(int *, int, int);
	int (*granularity)(size_t *, const properties *, int);
	int (*create)(unsigned long long *, size_t, const properties *, unsigned long long), (*release)(unsigned long long);
} driver;

static const struct { void *slot; const char *name, *older; } wanted[] = {
	{&driver.init, "cuInit", NULL}, {&driver.name, "cuGetErrorName", NULL},
	{&driver.by_bus, "cuDeviceGetByPCIBusId", NULL},
	{&driver.uuid, "cuDeviceGetUuid_v2", "cuDeviceGetUuid"}, {&driver.attribute, "cuDeviceGetAttribute", NULL},
	{&driver.granularity, "cuMemGetAllocationGranularity", NULL},
	{&driver.create, "cuMemCreate", NULL}, {&driver.release, "cuMemRelease", NULL},
};

// cuda_environment empties this process's environment, but for what keeps the driver to the cards named and away from
// a multi-process service. Nothing else may run in the vendor's code meanwhile.
static int cuda_environment(const char *visible, const char *empty) {
	if (clearenv()) return -1;
	// The order does not matter to a search by bus id; it keeps to the driver tools' own.
	if (setenv("CUDA_VISIBLE_DEVICES", visible, 1) || setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1)) return -1;
	// No daemon is found in an empty folder. Without this the driver looks for one in a place that anybody may make.
	if (setenv("CUDA_MPS_PIPE_DIRECTORY", empty, 1)) return -1;
	return setenv("CUDA_CACHE_DISABLE", "1", 1);
}

// cuda_load loads the library. On failure it writes the linker's words.
static int cuda_load(const char *path, char *why, size_t room) {
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

static int cuda_init(void) { return CALL(init, 0); }

// cuda_name returns the driver's name for a code, or NULL.
static const char *cuda_name(int code) {
	const char *name = NULL;
	return CALL(name, code, &name) == 0 ? name : NULL;
}

static int cuda_by_bus(const char *bus, int *device) { return CALL(by_bus, device, bus); }
static int cuda_uuid(int device, unsigned char uuid[16]) { return CALL(uuid, uuid, device); }

// cuda_virtual tells whether a card's memory can be had without a context.
static int cuda_virtual(int device, int *can) {
	enum { VIRTUAL_MEMORY_MANAGEMENT = 102 };
	*can = 0;
	if (!driver.granularity || !driver.create || !driver.release) return 0;
	return CALL(attribute, can, VIRTUAL_MEMORY_MANAGEMENT, device);
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

static int cuda_granularity(int device, size_t *bytes) {
	enum { MINIMUM = 0 };
	properties p = memory_of(device);
	return CALL(granularity, bytes, &p, MINIMUM);
}

static int cuda_create(int device, size_t bytes, unsigned long long *handle) {
	properties p = memory_of(device);
	return CALL(create, handle, bytes, &p, 0);
}

static int cuda_release(unsigned long long handle) { return CALL(release, handle); }
