// bareprobe is the least that a test allocation can cost, for Bookend's own to be measured against: load the driver,
// start it, take a block on every visible card and give it back. No check, no search.
// usage: bareprobe MIB [LIBRARY]
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Pinned memory of one card.
typedef struct {
	int type, handle_types;
	struct { int type, id; } location;
	void *windows;
	unsigned char flags[8];
} properties;

static struct {
	int (*init)(unsigned), (*count)(int *);
	int (*create)(unsigned long long *, size_t, const properties *, unsigned long long), (*release)(unsigned long long);
} driver;

static void load(const char *path) {
	const struct { void *slot; const char *name; } wanted[] = {
		{&driver.init, "cuInit"}, {&driver.count, "cuDeviceGetCount"},
		{&driver.create, "cuMemCreate"}, {&driver.release, "cuMemRelease"},
	};
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "bareprobe: %s\n", dlerror());
		exit(1);
	}
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		void *f = dlsym(library, wanted[i].name);
		if (!f) {
			fprintf(stderr, "bareprobe: the driver lacks %s\n", wanted[i].name);
			exit(1);
		}
		memcpy(wanted[i].slot, &f, sizeof f);
	}
}

static void must(int rc, const char *call) {
	if (rc == 0) return;
	fprintf(stderr, "bareprobe: %s: %d\n", call, rc);
	exit(1);
}

int main(int argc, char **argv) {
	char *end = NULL;
	unsigned long long handle, mib = argc == 2 || argc == 3 ? strtoull(argv[1], &end, 10) : 0;
	int cards;
	if (!mib || *end) {
		fprintf(stderr, "usage: bareprobe MIB [LIBRARY]\n");
		return 64;
	}
	load(argc == 3 ? argv[2] : "libcuda.so.1");
	must(driver.init(0), "cuInit");
	must(driver.count(&cards), "cuDeviceGetCount");
	for (int card = 0; card < cards; card++) {
		properties p = {.type = 1, .location = {.type = 1, .id = card}};
		must(driver.create(&handle, mib << 20, &p, 0), "cuMemCreate");
		must(driver.release(handle), "cuMemRelease");
	}
	printf("cards=%d mib=%llu\n", cards, mib);
	return 0;
}
