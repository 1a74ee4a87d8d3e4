// The driver's calls, for the files that take memory.
#ifndef DRIVER_H
#define DRIVER_H

#include "job.h"

#define OUT_OF_MEMORY 2

typedef struct {
	int type, handles;
	struct { int type, id; } location;
	void *win32;
	unsigned char flags[8];
} Prop;

typedef struct { unsigned char bytes[IPC_HANDLE]; } IpcHandle;

extern struct driver {
	int (*init)(unsigned), (*get)(int *, int), (*uuid)(unsigned char *, int), (*total)(size_t *, int);
	int (*retain)(void **, int), (*current)(void *), (*info)(size_t *, size_t *);
	int (*alloc)(unsigned long long *, size_t), (*free)(unsigned long long), (*set)(unsigned long long, unsigned char, size_t);
	int (*read)(void *, unsigned long long, size_t);
	int (*create)(unsigned long long *, size_t, const Prop *, unsigned long long), (*release)(unsigned long long);
	int (*share)(int *, unsigned long long, int, unsigned long long);
	int (*ipc_get)(IpcHandle *, unsigned long long), (*ipc_open)(unsigned long long *, IpcHandle, unsigned);
	int (*name)(int, const char **);
} cu;

void load_driver(void);
// check dies of a code that is no success.
void check(int rc, const char *call);
// announce adds a card to the ready line: what was allocated there and, with a context, what is gone from it.
void announce(int device, unsigned long long bytes, bool context);

// run_out dies in the words of a program that has so many bytes and could not have more.
void run_out(int device, unsigned long long bytes, unsigned long long held) __attribute__((noreturn));

#endif
