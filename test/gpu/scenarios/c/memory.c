// Taking memory, in the ways that programs do.
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned long long held; // bytes, of all blocks so far
static unsigned long long first, first_bytes; // the first block in a context

// use writes all of a block and reads its end back, as a job would.
static void use(unsigned long long at, unsigned long long bytes) {
	unsigned char last = 0;
	check(cu.set(at, 0x5a, bytes), "cuMemsetD8");
	check(cu.read(&last, at + bytes - 1, 1), "cuMemcpyDtoH");
	if (last != 0x5a) die("use memory: read back something else");
}

static int create(int device, unsigned long long bytes, bool export, unsigned long long *handle) {
	Prop prop = {.type = 1, .handles = export, .location = {1, device}}; // pinned, a POSIX descriptor, on this device
	return cu.create(handle, bytes, &prop, 0);
}

// piece takes one block; an export's descriptor is returned, otherwise -1.
static int piece(int device, unsigned long long bytes) {
	unsigned long long handle;
	int rc = flags.export ? create(device, bytes, true, &handle) : cu.alloc(&handle, bytes);
	if (rc == OUT_OF_MEMORY) run_out(device, bytes, held);
	check(rc, flags.export ? "cuMemCreate" : "cuMemAlloc");
	int fd = -1;
	if (flags.export) check(cu.share(&fd, handle, 1, 0), "cuMemExportToShareableHandle");
	if (!flags.export) use(handle, bytes);
	if (!flags.export && !first_bytes) first = handle, first_bytes = bytes;
	held += bytes;
	return fd;
}

static int device_of(int ordinal) {
	int device;
	check(cu.get(&device, ordinal), "cuDeviceGet");
	return device;
}

static int open_card(int ordinal) {
	int device = device_of(ordinal);
	void *context;
	int rc = cu.retain(&context, device);
	if (rc == OUT_OF_MEMORY) run_out(device, 0, 0);
	check(rc, "cuDevicePrimaryCtxRetain");
	check(cu.current(context), "cuCtxSetCurrent");
	return device;
}

// fill takes one block that leaves so many bytes free, or a few pages less where that is more than the largest.
static unsigned long long fill(unsigned long long leave) {
	size_t left = 0, total = 0;
	check(cu.info(&left, &total), "cuMemGetInfo");
	unsigned long long at, bytes = left > leave ? (left - leave) / PAGE * PAGE : 0;
	for (int tries = 0; tries < 64 && bytes > 0; tries++, bytes -= PAGE) {
		int rc = cu.alloc(&at, bytes);
		if (rc == OUT_OF_MEMORY) continue;
		check(rc, "cuMemAlloc");
		use(at, bytes);
		return bytes;
	}
	die("fill the card: %zu of %zu bytes are free and no block of nearly that is to be had", left, total);
}

static int take_on(int ordinal, int *exports, int room) {
	int device = open_card(ordinal), n = 0;
	unsigned long long bytes = flags.pieces ? flags.mib * MIB / PAGE * PAGE : flags.mib * MIB;
	long chunks = flags.pieces ? (long)(bytes / PAGE) : flags.chunks;
	if (flags.near_full >= 0) bytes = fill(flags.near_full * MIB);
	else for (long i = 0; bytes && i < chunks; i++) {
		int fd = piece(device, bytes / chunks);
		if (fd >= 0 && n < room) exports[n++] = fd;
	}
	if (flags.ask) piece(device, flags.ask * MIB);
	announce(device, bytes, true);
	return n;
}

static void start_driver(void) {
	if (flags.list) setenv("FAKECUDA_LIST", flags.list, 1);
	load_driver();
	int rc = vendor_cramped() ? OUT_OF_MEMORY : cu.init(0);
	if (rc && flags.torch)
		die("RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
		    "NumCudaDevices() that might have already set an error? Error %d: %s", rc, rc == OUT_OF_MEMORY ? "out of memory" : "?");
	check(rc, "cuInit");
}

int take_memory(int exports[MAX_EXPORTS]) {
	start_driver();
	int n = 0;
	char *rest = strdup(flags.gpus), *ordinal;
	while ((ordinal = strsep(&rest, ","))) n += take_on(atoi(ordinal), exports + n, MAX_EXPORTS - n);
	return n;
}

void work_on(void) {
	for (;;) {
		double began = clock_ms(), last = began, worst = 0;
		long uses = 0;
		for (; last - began < flags.beat; uses++) {
			use(first, first_bytes);
			vendor_pace();
			double now = clock_ms();
			if (now - last > worst) worst = now - last;
			last = now;
		}
		dprintf(1, "beat from_ms=%.3f to_ms=%.3f uses=%ld worst_ms=%.3f\n", began, last, uses, worst);
	}
}

void churn(void) {
	for (unsigned long long at;;) {
		check(cu.alloc(&at, flags.churn_mib * MIB), "cuMemAlloc");
		stay(flags.churn / 1e3);
		check(cu.free(at), "cuMemFree");
		stay(flags.churn / 1e3);
	}
}

void sink(void) {
	enum { BLOCKS = 200 };
	unsigned long long at[BLOCKS];
	for (int i = 0; i < BLOCKS; i++) check(cu.alloc(&at[i], 4 * MIB), "cuMemAlloc");
	for (int i = 0; i < BLOCKS; i++) {
		stay(flags.sink / 1e3);
		check(cu.free(at[i]), "cuMemFree");
	}
	for (;;) stay(flags.sleep);
}

// The probe

// try takes a number of pages.
static bool try(int device, unsigned long long pages, unsigned long long *handle) {
	int rc = pages ? create(device, pages * PAGE, false, handle) : OUT_OF_MEMORY;
	if (rc != OUT_OF_MEMORY) check(rc, "cuMemCreate");
	return rc == 0;
}

// largest takes the largest block there is: without a context nobody says how much is free. On an idle card the
// first or second try succeeds.
static unsigned long long largest(int device, unsigned long long *handle) {
	size_t total = 0;
	check(cu.total(&total, device), "cuDeviceTotalMem");
	unsigned long long high = total / PAGE, low = 0;
	for (int i = 0; i < 4 && high > 0; i++, high--)
		if (try(device, high, handle)) return high * PAGE;
	while (low < high) {
		unsigned long long middle = low + (high - low + 1) / 2;
		if (!try(device, middle, handle)) {
			high = middle - 1;
			continue;
		}
		low = middle;
		check(cu.release(*handle), "cuMemRelease");
	}
	if (!try(device, low, handle)) die("probe: not even %llu bytes are to be had", low * PAGE);
	return low * PAGE;
}

unsigned long long probe_memory(void) {
	unsigned long long handle = 0, bytes = flags.mib * MIB;
	start_driver();
	int device = device_of(atoi(flags.gpus));
	if (flags.all) bytes = largest(device, &handle);
	else check(create(device, bytes, false, &handle), "cuMemCreate");
	announce(device, bytes, false);
	return handle;
}

void release_probe(unsigned long long handle) { check(cu.release(handle), "cuMemRelease"); }

// CUDA IPC

static int shared_device;

void take_shared(unsigned char handle[IPC_HANDLE]) {
	IpcHandle h;
	unsigned long long at, bytes = flags.mib * MIB;
	start_driver();
	int device = open_card(atoi(flags.gpus));
	check(cu.alloc(&at, bytes), "cuMemAlloc");
	use(at, bytes);
	check(cu.ipc_get(&h, at), "cuIpcGetMemHandle");
	memcpy(handle, h.bytes, IPC_HANDLE);
	announce(device, bytes, true);
}

void open_importer(void) {
	start_driver();
	shared_device = open_card(atoi(flags.gpus));
}

void map_shared(const unsigned char handle[IPC_HANDLE], unsigned long long bytes) {
	IpcHandle h;
	unsigned long long at;
	unsigned char last = 0;
	memcpy(h.bytes, handle, IPC_HANDLE);
	check(cu.ipc_open(&at, h, 1), "cuIpcOpenMemHandle"); // 1: peer access where needed
	check(cu.read(&last, at + bytes - 1, 1), "cuMemcpyDtoH");
	if (last != 0x5a) die("map memory: it holds something else than the exporter wrote");
	announce(shared_device, bytes, true);
}
