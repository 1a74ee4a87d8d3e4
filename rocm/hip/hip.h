// The calls of HIP that a test allocation needs, by dlopen and own prototypes: nothing of ROCm is needed to build or to
// run. Each returns HIP's code, 0 for success. All is static: the vendor's libraries see every name that this program
// exports.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The library has no such function.
#define HIP_LACKS (-1)
#define CALL(function, ...) (hip.function ? hip.function(__VA_ARGS__) : HIP_LACKS)

// What an allocation is to be: pinned memory of one device, not to be shared.
typedef struct {
	int type, handle_types;
	struct { int type, id; } location;
	void *windows;
	unsigned char flags[4];
} properties;

static struct {
	int (*init)(unsigned), (*by_bus)(int *, const char *);
	const char *(*name)(int);
	int (*granularity)(size_t *, const properties *, int);
	int (*create)(void **, size_t, const properties *, unsigned long long), (*release)(void *);
} hip;

static const struct { void *slot; const char *name; } wanted[] = {
	{&hip.init, "hipInit"}, {&hip.name, "hipGetErrorName"}, {&hip.by_bus, "hipDeviceGetByPCIBusId"},
	{&hip.granularity, "hipMemGetAllocationGranularity"},
	{&hip.create, "hipMemCreate"}, {&hip.release, "hipMemRelease"},
};

// hip_environment empties this process's environment, but for what keeps ROCm to the devices named. Nothing else may run
// in the vendor's code meanwhile.
static int hip_environment(const char *visible) {
	return clearenv() || setenv("ROCR_VISIBLE_DEVICES", visible, 1) ? -1 : 0;
}

// hip_load loads the library. On failure it writes the linker's words.
static int hip_load(const char *path, char *why, size_t room) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		const char *words = dlerror();
		snprintf(why, room, "%s", words ? words : "");
		return HIP_LACKS;
	}
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		void *f = dlsym(library, wanted[i].name);
		memcpy(wanted[i].slot, &f, sizeof f);
	}
	return 0;
}

static int hip_init(void) { return CALL(init, 0); }
static const char *hip_name(int code) { return hip.name ? hip.name(code) : NULL; }
static int hip_by_bus(const char *bus, int *device) { return CALL(by_bus, device, bus); }

static properties memory_of(int device) {
	enum { PINNED = 1, DEVICE = 1 };
	properties p;
	memset(&p, 0, sizeof p);
	p.type = PINNED;
	p.location.type = DEVICE;
	p.location.id = device;
	return p;
}

static int hip_granularity(int device, size_t *bytes) {
	enum { MINIMUM = 0 };
	properties p = memory_of(device);
	return CALL(granularity, bytes, &p, MINIMUM);
}

static int hip_create(int device, size_t bytes, void **handle) {
	properties p = memory_of(device);
	return CALL(create, handle, bytes, &p, 0);
}

static int hip_release(void *handle) { return CALL(release, handle); }
