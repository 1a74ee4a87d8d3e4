// A library in front of the driver's that takes its time to give memory back: what a test allocation holds for some 45 ms
// can then be met, and the test be killed, while it is held. All else is the driver's own, which this one needs.
// It takes 150 ms, or as long as it takes until there is the file that BOOKEND_LANE_HOLD names.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOT_FOUND 500 // CUDA_ERROR_NOT_FOUND

// gate is the file's name, or NULL. The backend has emptied its environment by now: /proc has the one it was started with.
static const char *gate(void) {
	static const char name[] = "\0BOOKEND_LANE_HOLD=";
	static char all[65536];
	int fd = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, all + 1, sizeof all - 2); // after a zero, and before one
	if (fd >= 0) close(fd);
	char *found = n > 0 ? memmem(all, (size_t)n + 1, name, sizeof name - 1) : NULL;
	return found ? found + sizeof name - 1 : NULL;
}

static void hold(void) {
	const char *file = gate();
	if (!file) nanosleep(&(struct timespec){.tv_nsec = 150000000}, (void *)0);
	while (file && access(file, F_OK)) nanosleep(&(struct timespec){.tv_nsec = 5000000}, (void *)0);
}

int cuMemRelease(unsigned long long handle) {
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	int (*release)(unsigned long long);
	*(void **)&release = driver ? dlsym(driver, "cuMemRelease") : (void *)0;
	hold();
	return release ? release(handle) : NOT_FOUND;
}
