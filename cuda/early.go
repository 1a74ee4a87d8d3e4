package main

/*
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

static void *start(void *path) {
	void *library = dlopen(path, RTLD_LAZY | RTLD_GLOBAL);
	int (*init)(void) = library ? (int (*)(void))dlsym(library, "nvmlInit_v2") : NULL;
	if (init)
		init();
	return NULL;
}

// NVML starts before Go's runtime, which takes 1 to 2 ms: NVML takes 11 ms and more. A failure is of no account here,
// as openLibrary starts NVML in any case: it waits for this thread, and a second start only counts.
// The thread takes no signal: Go's handlers do not know it.
// Threat: a user who runs this program by hand may name any library, and loads it with no other rights than their own.
__attribute__((constructor)) static void early(void) {
	char *path = getenv("BOOKEND_NVML"); // protocol.Request.Environment
	pthread_t thread;
	sigset_t all, before;
	if (!path)
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	if (!pthread_create(&thread, NULL, start, path))
		pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}
*/
import "C"
