// The calls that a test allocation needs, by dlopen and own prototypes: nothing of a toolkit is needed to build or to
// run. CUDA's driver API (cu...) and HIP (hip...) share them; a process loads one of both. Each returns the library's
// code, 0 for success. All is static: the vendor's libraries see every name that this program exports.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

// The library has no such function.
#define LACKS (-1)
#define CALL(function, ...) (driver.function ? driver.function(__VA_ARGS__) : LACKS)

// What an allocation is to be: pinned memory of one GPU, not to be shared. HIP reads fewer of the flags.
typedef struct {
	int type, handle_types;
	struct { int type, id; } location;
	void *windows;
	unsigned char flags[8];
} properties;

static struct {
	int (*init)(unsigned), (*cu_name)(int, const char **);
	const char *(*hip_name)(int);
	int (*by_bus)(int *, const char *), (*uuid)(unsigned char *, int), (*attribute)(int *, int, int);
	int (*granularity)(size_t *, const properties *, int);
	// HIP's handle is a pointer, which is as large.
	int (*create)(unsigned long long *, size_t, const properties *, unsigned long long), (*release)(unsigned long long);
	// For a pattern test, which CUDA alone has.
	int (*retain)(void **, int), (*give_back)(int), (*use)(void *), (*load)(void **, const void *);
	int (*function)(void **, void *, const char *), (*room)(size_t *, size_t *);
	int (*take)(unsigned long long *, size_t), (*drop)(unsigned long long);
	int (*set)(unsigned long long, unsigned char, size_t), (*copy)(void *, unsigned long long, size_t);
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
	int (*query)(void *);
} driver;

// A newer name follows an older one.
static const struct { void *slot; const char *name; } wanted[] = {
	{&driver.init, "cuInit"}, {&driver.init, "hipInit"},
	{&driver.cu_name, "cuGetErrorName"}, {&driver.hip_name, "hipGetErrorName"},
	{&driver.by_bus, "cuDeviceGetByPCIBusId"}, {&driver.by_bus, "hipDeviceGetByPCIBusId"},
	{&driver.uuid, "cuDeviceGetUuid"}, {&driver.uuid, "cuDeviceGetUuid_v2"},
	{&driver.attribute, "cuDeviceGetAttribute"},
	{&driver.granularity, "cuMemGetAllocationGranularity"}, {&driver.granularity, "hipMemGetAllocationGranularity"},
	{&driver.create, "cuMemCreate"}, {&driver.create, "hipMemCreate"},
	{&driver.release, "cuMemRelease"}, {&driver.release, "hipMemRelease"},
	{&driver.retain, "cuDevicePrimaryCtxRetain"}, {&driver.give_back, "cuDevicePrimaryCtxRelease_v2"},
	{&driver.use, "cuCtxSetCurrent"}, {&driver.load, "cuModuleLoadData"}, {&driver.function, "cuModuleGetFunction"},
	{&driver.room, "cuMemGetInfo_v2"}, {&driver.take, "cuMemAlloc_v2"}, {&driver.drop, "cuMemFree_v2"},
	{&driver.set, "cuMemsetD8_v2"}, {&driver.copy, "cuMemcpyDtoH_v2"}, {&driver.launch, "cuLaunchKernel"},
	{&driver.query, "cuStreamQuery"},
};

// driver_load loads the library. On failure it writes the linker's words.
static int driver_load(const char *path, char *why, size_t room) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		const char *words = dlerror();
		snprintf(why, room, "%s", words ? words : "");
		return LACKS;
	}
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		void *f = dlsym(library, wanted[i].name);
		if (f) memcpy(wanted[i].slot, &f, sizeof f);
	}
	return 0;
}

static int driver_init(void) { return CALL(init, 0); }

// driver_name returns the library's name for a code, or NULL.
static const char *driver_name(int code) {
	const char *name = NULL;
	if (driver.hip_name) return driver.hip_name(code);
	return CALL(cu_name, code, &name) == 0 ? name : NULL;
}

static int driver_by_bus(const char *bus, int *device) { return CALL(by_bus, device, bus); }
static int driver_uuid(int device, unsigned char uuid[16]) { return CALL(uuid, uuid, device); }

// driver_contextless tells whether a GPU's memory can be had without a context. HIP has no such attribute.
static int driver_contextless(int device, int *can) {
	enum { VIRTUAL_MEMORY_MANAGEMENT = 102 };
	*can = 1;
	if (driver.hip_name) return 0; // a function that is missing is reported when it is called
	*can = driver.granularity && driver.create && driver.release;
	return *can && driver.attribute ? driver.attribute(can, VIRTUAL_MEMORY_MANAGEMENT, device) : 0;
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

static int driver_granularity(int device, size_t *bytes) {
	enum { MINIMUM = 0 };
	properties p = memory_of(device);
	return CALL(granularity, bytes, &p, MINIMUM);
}

static int driver_create(int device, size_t bytes, unsigned long long *handle) {
	properties p = memory_of(device);
	return CALL(create, handle, bytes, &p, 0);
}

static int driver_release(unsigned long long handle) { return CALL(release, handle); }

// driver_enter makes the GPU's context and lets this thread use it.
static int driver_enter(int device) {
	void *context;
	int failed = CALL(retain, &context, device);
	return failed ? failed : CALL(use, context);
}

static int driver_leave(int device) { return CALL(give_back, device); }
static int driver_room(size_t *free) {
	size_t total;
	return CALL(room, free, &total);
}
static int driver_take(size_t bytes, unsigned long long *at) { return CALL(take, at, bytes); }
static int driver_drop(unsigned long long at) { return CALL(drop, at); }
static int driver_clear(unsigned long long at, size_t bytes) { return CALL(set, at, 0, bytes); }
static int driver_copy(void *to, unsigned long long from, size_t bytes) { return CALL(copy, to, from, bytes); }
static int driver_load_kernels(const char *text, void **module) { return CALL(load, module, text); }
static int driver_kernel(void *module, const char *name, void **kernel) { return CALL(function, kernel, module, name); }

// driver_run starts a kernel of four arguments and does not wait. More threads are no faster on 132 multiprocessors.
static int driver_run(void *kernel, unsigned long long arguments[4]) {
	enum { BLOCKS = 1056, THREADS = 512 };
	void *list[] = {&arguments[0], &arguments[1], &arguments[2], &arguments[3]};
	return CALL(launch, kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, list, NULL);
}
static int driver_query(void) { return CALL(query, NULL); }
