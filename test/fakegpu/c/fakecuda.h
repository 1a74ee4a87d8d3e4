// What the files of fakecuda share.
#ifndef FAKECUDA_H
#define FAKECUDA_H

#include <stdbool.h>

#define MAX_EXPORTS 16

struct flags {
	char *gpus;
	const char *list, *name, *socket;
	long mib, chunks;
	double sleep, workers; // seconds; negative: for ever, none
	bool context, orphan, fork_hold, export, stop, leader_exits, torch;
};

// say adds to the ready line; die reports an error instead of it and ends with status 1.
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

// take_memory takes what the flags ask for on each card and, for exports, returns their descriptors.
int take_memory(const struct flags *f, int exports[MAX_EXPORTS]);

// send_memory hands descriptors, and one of /dev/nvidiactl as the driver's are, to the process at socket.
void send_memory(const char *socket, const int *fds, int n);
int listen_at(const char *socket);
void receive_memory(int listener);

// own_path is a path in the folder of this program.
const char *own_path(const char *name);

#endif
