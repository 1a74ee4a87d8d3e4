// What the files of cudajob share. Built with -DFAKE_VENDOR it is fakecuda, the same program on the fake driver.
#ifndef JOB_H
#define JOB_H

#include <stdbool.h>
#include <stddef.h>

#define MIB (1024ULL * 1024)
#define PAGE (2 * MIB) // the driver's page: block sizes are multiples of it
#define MAX_EXPORTS 16
#define MAX_WORKERS 64

struct flags {
	char *gpus;
	const char *list, *name, *socket, *lock, *other, *after;
	long mib, chunks, workers, near_full; // near_full: MiB to leave free; negative: no
	long idle, ask, churn_mib;            // MiB
	long beat, churn, sink;               // ms
	double sleep, workers_life;           // seconds; negative: for ever
	bool all, orphan, fork_hold, export, stop, vfork, leader_exits, pieces, torch;
};
extern struct flags flags;

// say adds to the ready line; die reports an error instead of it and ends with status 1.
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void report_ready(int pid);
// report_to sends the ready line, or the error, elsewhere than to the standard output.
void report_to(int fd);

// vendor_library is the driver's library, vendor_nvml the one that tells of it, vendor_node a path below its /dev.
const char *vendor_library(void);
const char *vendor_nvml(void);
const char *vendor_node(const char *name);
// vendor_companion is a descriptor to be handed over beside exported memory, or -1.
int vendor_companion(void);
// vendor_cramped: the fake driver does not start in a process whose address space is limited, as the real one does not.
bool vendor_cramped(void);
// vendor_pace lets the time pass that a real card takes for a piece of work.
void vendor_pace(void);
// vendor_mortal sees to it that this process, were it forgotten, gives its memory back some day.
void vendor_mortal(void);

// take_memory takes what the flags ask for on each card and, for exports, returns their descriptors.
int take_memory(int exports[MAX_EXPORTS]);
// work_on uses the first block of all, again and again, and says every --beat ms how often that was.
void work_on(void) __attribute__((noreturn));
// churn takes a block and gives it back, every --churn ms.
void churn(void) __attribute__((noreturn));
// sink gives a small block back every --sink ms, of many that it took at first.
void sink(void) __attribute__((noreturn));
// probe_memory takes memory without a context; release_probe gives it back.
unsigned long long probe_memory(void);
void release_probe(unsigned long long handle);
// watch_memory says, line by line, when more than --mib of a card is in use, and when no longer.
void watch_memory(const char *uuid) __attribute__((noreturn));
// watch_highest says how much of a card is in use, at first and whenever it is more than ever before.
void watch_highest(const char *uuid) __attribute__((noreturn));
#define IPC_HANDLE 64 // bytes of a CUDA IPC handle
// take_shared allocates and makes the handle by which another process maps the memory.
void take_shared(unsigned char handle[IPC_HANDLE]);
// open_importer makes a context; map_shared needs it.
void open_importer(void);
void map_shared(const unsigned char handle[IPC_HANDLE], unsigned long long bytes);

// Over unix sockets. send_memory hands descriptors to a waiting holder, who answers when it has them.
void send_memory(const char *path, const int *fds, int n);
int listen_at(const char *path);
void receive_memory(int listener);
// offer_shared hands an IPC handle to the importer that comes, and returns when it has mapped the memory.
void offer_shared(int listener, const unsigned char handle[IPC_HANDLE], unsigned long long bytes);
// fetch_shared waits for the exporter and returns a connection on which to answer.
int fetch_shared(const char *path, unsigned char handle[IPC_HANDLE], unsigned long long *bytes);
void answer_shared(int connection);

// leave_session makes an orphan of this process; the command started ends when the orphan is ready.
void leave_session(void);
// hold_in_child returns in a child that has every descriptor, once its parent has killed itself.
int hold_in_child(void);
void start_workers(void);
// quiet lets go of the standard streams, for whoever reads them to the end.
void quiet(void);
void stay(double seconds);
// await_file returns once there is such a file.
void await_file(const char *path);
// clock_ms is CLOCK_MONOTONIC in ms.
double clock_ms(void);
void live_on(void);

#endif
