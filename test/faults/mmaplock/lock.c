// Preloaded into a program, this makes the program's memory unreadable for everybody: a thread writes to a mapping of a
// file whose file system takes no writes, and sleeps there holding the mapping; another removes the mapping, and sleeps
// waiting for that with the lock of all the program's memory. Whoever asks for its maps or environment waits as well.
//
// MMAPLOCK_FILE is the file, MMAPLOCK_WHEN the path whose appearance is the signal to begin.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { size = 4096 };
static volatile pid_t writer;

static void *write_to(void *at) {
	writer = syscall(SYS_gettid);
	*(volatile char *)at = 1;
	return NULL;
}

static int sleeps(pid_t thread) {
	char path[64], text[512] = "";
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
	FILE *f = fopen(path, "r");
	if (f == NULL) return 0;
	size_t n = fread(text, 1, sizeof text - 1, f);
	fclose(f);
	text[n] = 0;
	const char *end = strrchr(text, ')');
	return end != NULL && !strncmp(end, ") D", 3);
}

static void *hold(void *unused) {
	(void)unused;
	int fd = open(getenv("MMAPLOCK_FILE"), O_RDWR);
	char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || at == MAP_FAILED) {
		perror("mmaplock");
		return NULL;
	}
	char seen = *(volatile char *)at; // the page is there; only writing to it needs the file system
	(void)seen;
	while (access(getenv("MMAPLOCK_WHEN"), F_OK)) usleep(1000);
	pthread_t thread;
	pthread_create(&thread, NULL, write_to, at);
	while (!writer || !sleeps(writer)) usleep(1000);
	munmap(at, size);
	return NULL;
}

__attribute__((constructor)) static void begin(void) {
	pthread_t thread;
	if (getenv("MMAPLOCK_FILE")) pthread_create(&thread, NULL, hold, NULL);
}
