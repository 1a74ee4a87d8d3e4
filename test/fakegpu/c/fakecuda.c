// fakecuda plays the user's CUDA program: it takes memory from the fake driver beside it and keeps it in one of
// the ways real programs do. Once it holds what it was asked for it prints one line:
//
//   ready pid=PID [gpu=UUID bytes=N]... [child=PID]...
//
// usage: fakecuda alloc --mib N [flags]
//   --gpu I[,I...]     CUDA ordinals (0)             --chunks C        in C blocks
//   --no-context       cuMemCreate, no context       --list ROLE       compute, graphics or mps
//   --name TEXT        its own comm, any bytes       --sleep S         then exit; without it, until killed
//   --orphan           leave the session first; the command returns when the orphan is ready
//   --fork-hold        a child that never execs keeps the descriptors
//   --workers S        two such children that end S seconds after their parent
//   --export SOCKET    memory as descriptors, handed to a waiting holdfd
//   --stop             SIGSTOP itself                --leader-exits    only a second thread lives on
//   --torch            when memory runs out, say it in PyTorch's words
// usage: fakecuda holdfd SOCKET [--orphan] [--name TEXT] [--sleep S]
//   ready when it listens; keeps what one --export hands it; touches no CUDA
#define _GNU_SOURCE
#include "fakecuda.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static struct flags flags = {.gpus = "0", .chunks = 1, .sleep = -1, .workers = -1, .context = true};
static int report = 1; // where the ready line goes
static char line[4096];

void say(const char *format, ...) {
	va_list args;
	va_start(args, format);
	size_t n = strlen(line);
	vsnprintf(line + n, sizeof line - n, format, args);
	va_end(args);
}

void die(const char *format, ...) {
	char text[1024];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	dprintf(report == 1 ? 2 : report, "%s\n", text);
	_exit(1);
}

const char *own_path(const char *name) {
	static char path[2 * PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
	if (n < 0) die("fakecuda: where am I: %s", strerror(errno));
	path[n] = 0;
	strcpy(strrchr(path, '/') + 1, name);
	return path;
}

// Leaving

static void quiet(void) {
	int null = open("/dev/null", O_RDWR);
	for (int fd = 0; fd < 3; fd++) dup2(null, fd);
	if (null > 2) close(null);
}

// The command stays until the orphan has reported, passes its line on and ends with its verdict.
static void leave_session(void) {
	int p[2];
	if (pipe2(p, O_CLOEXEC)) die("fakecuda: pipe: %s", strerror(errno));
	if (fork() == 0) {
		setsid();
		if (fork()) _exit(0);
		report = p[1];
		quiet();
		return;
	}
	close(p[1]);
	char text[4096];
	size_t n = 0;
	for (ssize_t got; n < sizeof text && (got = read(p[0], text + n, sizeof text - n)) > 0; ) n += got;
	bool ready = n > 6 && !memcmp(text, "ready ", 6);
	_exit(write(ready ? 1 : 2, text, n) == (ssize_t)n && ready ? 0 : 1);
}

static void report_ready(void) {
	dprintf(report, "ready pid=%d%s\n", getpid(), line);
	if (report != 1) close(report);
}

// Staying

static void seconds(double s) {
	struct timespec left = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
	while (nanosleep(&left, &left) && errno == EINTR) {}
}

static void stay(double s) {
	if (s >= 0) seconds(s);
	else for (;;) pause();
}

// A child that keeps every descriptor, in a session of its own. With a pipe it learns of its parent's end by the
// end of the pipe, and lives for `linger` seconds more.
static void keep_in_child(const int *alive, double linger) {
	pid_t pid = fork();
	if (pid < 0) die("fakecuda: fork: %s", strerror(errno));
	if (pid > 0) {
		say(" child=%d", pid);
		return;
	}
	setsid();
	quiet();
	if (report != 1) close(report);
	char c;
	if (alive) {
		close(alive[1]);
		while (read(alive[0], &c, 1) < 0 && errno == EINTR) {}
	}
	stay(linger);
	_exit(0);
}

static void start_workers(void) {
	int alive[2];
	if (pipe2(alive, O_CLOEXEC)) die("fakecuda: pipe: %s", strerror(errno));
	for (int i = 0; i < 2; i++) keep_in_child(alive, flags.workers);
}

static void *outlive_leader(void *unused) {
	stay(flags.sleep);
	_exit(0);
	return unused;
}

static void live_on(void) {
	if (flags.stop) raise(SIGSTOP);
	pthread_t other;
	if (flags.leader_exits && pthread_create(&other, NULL, outlive_leader, NULL) == 0) pthread_exit(NULL);
	stay(flags.sleep);
}

// Verbs

static void begin(void) {
	if (flags.orphan) leave_session();
	if (flags.name) prctl(PR_SET_NAME, flags.name);
}

static void alloc(void) {
	begin();
	int exports[MAX_EXPORTS];
	int n = take_memory(&flags, exports);
	if (flags.export) send_memory(flags.socket, exports, n);
	if (flags.fork_hold) keep_in_child(NULL, -1);
	if (flags.workers >= 0) start_workers();
	report_ready();
	live_on();
}

static void hold(void) {
	begin();
	int listener = listen_at(flags.socket);
	report_ready();
	receive_memory(listener);
	live_on();
}

static const struct option options[] = {
	{"mib", 1, 0, 'm'}, {"gpu", 1, 0, 'g'}, {"chunks", 1, 0, 'c'}, {"no-context", 0, 0, 'C'},
	{"list", 1, 0, 'l'}, {"name", 1, 0, 'n'}, {"sleep", 1, 0, 's'}, {"orphan", 0, 0, 'o'},
	{"fork-hold", 0, 0, 'f'}, {"workers", 1, 0, 'w'}, {"export", 1, 0, 'e'}, {"stop", 0, 0, 'S'},
	{"leader-exits", 0, 0, 'L'}, {"torch", 0, 0, 't'}, {0, 0, 0, 0},
};

static void set(int option) {
	switch (option) {
	case 'm': flags.mib = atol(optarg); break;
	case 'g': flags.gpus = optarg; break;
	case 'c': flags.chunks = atol(optarg) > 0 ? atol(optarg) : 1; break;
	case 'C': flags.context = false; break;
	case 'l': flags.list = optarg; break;
	case 'n': flags.name = optarg; break;
	case 's': flags.sleep = atof(optarg); break;
	case 'o': flags.orphan = true; break;
	case 'f': flags.fork_hold = true; break;
	case 'w': flags.workers = atof(optarg); break;
	case 'e': flags.export = true, flags.socket = optarg; break;
	case 'S': flags.stop = true; break;
	case 'L': flags.leader_exits = true; break;
	case 't': flags.torch = true; break;
	default: exit(2);
	}
}

int main(int argc, char **argv) {
	signal(SIGPIPE, SIG_IGN);
	for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1; ) set(option);
	const char *verb = optind < argc ? argv[optind] : "";
	if (!strcmp(verb, "alloc") && optind + 1 == argc) {
		alloc();
		return 0;
	}
	if (strcmp(verb, "holdfd") || optind + 2 != argc) {
		fputs("usage: fakecuda alloc --mib N [flags] | fakecuda holdfd SOCKET [flags]\n", stderr);
		return 2;
	}
	flags.socket = argv[optind + 1];
	hold();
	return 0;
}
