// cudajob plays the user's CUDA program on a real GPU, through the driver API alone: it takes memory, uses it, and
// keeps it in one of the ways real programs do. fakecuda is the same program on the fake driver beside it. Once it
// holds what it was asked for it prints one line:
//
//   ready pid=PID [gpu=UUID bytes=N [used=M]]... [child=PID]... [holder=PID]
//
// bytes is what it allocated, or mapped, on a card; used what cuMemGetInfo says is gone from the whole card: its own
// context included, and everybody else's memory too. Without --sleep every verb but ipc-export lives until killed.
//
// usage: cudajob alloc [--mib N|--near-full MIB] [flags]
//   --gpu I[,I...]     CUDA ordinals (0)             --near-full MIB   one block, all but MIB of what is free
//   --chunks C         in C blocks                   --pieces-2mib     in blocks of 2 MiB
//   --list ROLE        fake: compute, graphics or mps
//   --fork-hold        a child that never execs keeps all descriptors, the parent kills itself: pid is the dead
//                      parent's, holder the child's
//   --workers N        N forked children that end by themselves, --workers-life S (3) seconds after their parent
//   --export SOCKET    memory as descriptors, handed to a waiting holdfd
//   --stop             SIGSTOP itself                --leader-exits    only a second thread lives on
//   --torch            when memory runs out, say it in PyTorch's words; of what it has, --idle MIB counts as its pool's
//                      unused part, and --other PID:MIB is somebody else's
//   --ask MIB          one more block at the end, which may be too large
//   --after FILE       ready at once, without a word of a card; the memory is taken when there is such a file
//   --beat MS          use the first block again and again, and say every MS ms "beat from_ms=T to_ms=T uses=N worst_ms=T":
//                      how often that was, and what took longest; until killed. Times are CLOCK_MONOTONIC
//   --churn MS         take 64 MiB more every MS ms and give it back after as long, until killed; --churn-mib MIB so many
//   --sink MS          give a block of 4 MiB back every MS ms; it takes 200 of them first
//   --vfork            wait in the kernel (state D) for a child of vfork that never ends
// usage: cudajob holdfd SOCKET
//   ready when it listens; keeps what one --export hands it; touches no CUDA
// usage: cudajob holdctl
//   has /dev/nvidiactl open and nothing else; touches no CUDA
// usage: cudajob ipc-export --mib N --socket SOCKET [--gpu I]
//   ready when it listens; ends once an importer has mapped the memory
// usage: cudajob ipc-import --socket SOCKET [--gpu I]
//   waits up to 30 s for the exporter; ready when it has mapped the memory
// usage: cudajob probe --mib N|--all --lock FILE [--gpu I] [--after FILE]
//   takes FILE's lock (flock), then one block without a context, --all the largest there is; on its end, which comes
//   when there is the file of --after, gives the memory back first, then the lock
// usage: cudajob watch UUID --mib N
//   no CUDA: through NVML it says "taken used=BYTES after_ms=T" once more than N MiB of the card are in use, "empty ..."
//   once none are, and so on until killed; it begins with "empty"
// usage: cudajob highest UUID
//   no CUDA: through NVML it says "highest used=BYTES" of the card, and again whenever that is more than ever before, until killed
// Every verb: --name TEXT its own comm, any bytes; --sleep S then exit; --orphan leave the session first, the command
// returns when the orphan is ready.
#define _GNU_SOURCE
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <unistd.h>

struct flags flags = {.gpus = "0", .chunks = 1, .churn_mib = 64, .near_full = -1, .sleep = -1, .workers_life = 3};

// The ready line

static int report = 1; // where it goes
static char line[8192];

void report_to(int fd) {
	if (report > 2) close(report);
	report = fd;
}

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
	bool torch = flags.torch && (!strncmp(text, "torch.", 6) || !strncmp(text, "RuntimeError", 12));
	dprintf(report == 1 ? 2 : report, "%s%s\n", torch ? "" : "cudajob: ", text);
	_exit(1);
}

void report_ready(int pid) {
	dprintf(report, "ready pid=%d%s\n", pid, line);
	if (report > 2) report_to(-1);
}

// Verbs

static void begin(void) {
	vendor_mortal();
	if (flags.name) prctl(PR_SET_NAME, flags.name);
	if (flags.orphan) leave_session();
}

// Of what is taken later nothing can be said yet.
static void be_late(void) {
	report_ready(getpid());
	quiet();
	await_file(flags.after);
}

static void alloc(void) {
	int exports[MAX_EXPORTS];
	if (flags.after) be_late();
	int n = take_memory(exports);
	if (flags.export) send_memory(flags.socket, exports, n);
	if (flags.workers > 0) start_workers();
	if (!flags.after) report_ready(flags.fork_hold ? hold_in_child() : getpid());
	if (flags.fork_hold) quiet();
	if (flags.beat) work_on();
	if (flags.churn) churn();
	if (flags.sink) sink();
	live_on();
}

static void hold(void) {
	int listener = listen_at(flags.socket);
	report_ready(getpid());
	receive_memory(listener);
	live_on();
}

static void hold_control(void) {
	if (open(vendor_node("nvidiactl"), O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC) < 0)
		die("open nvidiactl: %s", strerror(errno));
	report_ready(getpid());
	live_on();
}

static void export_shared(void) {
	unsigned char handle[IPC_HANDLE];
	take_shared(handle);
	int listener = listen_at(flags.socket);
	report_ready(getpid());
	offer_shared(listener, handle, flags.mib * MIB);
	_exit(0); // without a free: the driver ends what was this process's
}

static void import_shared(void) {
	unsigned char handle[IPC_HANDLE];
	unsigned long long bytes;
	open_importer();
	int exporter = fetch_shared(flags.socket, handle, &bytes);
	map_shared(handle, bytes);
	report_ready(getpid());
	answer_shared(exporter);
	live_on();
}

static void probe(void) {
	int lock = open(flags.lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (lock < 0 || flock(lock, LOCK_EX)) die("lock %s: %s", flags.lock, strerror(errno));
	unsigned long long handle = probe_memory();
	report_ready(getpid());
	if (flags.after) await_file(flags.after);
	else live_on();
	release_probe(handle);
	close(lock);
}

static void watch(void) { watch_memory(flags.socket); }
static void highest(void) { watch_highest(flags.socket); }

// Flags

static const struct option options[] = {
	{"mib", 1, 0, 'm'}, {"gpu", 1, 0, 'g'}, {"chunks", 1, 0, 'c'},
	{"list", 1, 0, 'l'}, {"name", 1, 0, 'n'}, {"sleep", 1, 0, 's'}, {"orphan", 0, 0, 'o'},
	{"fork-hold", 0, 0, 'f'}, {"workers", 1, 0, 'w'}, {"workers-life", 1, 0, 'W'}, {"export", 1, 0, 'e'},
	{"stop", 0, 0, 'S'}, {"leader-exits", 0, 0, 'L'}, {"torch", 0, 0, 't'},
	{"pieces-2mib", 0, 0, '2'}, {"near-full", 1, 0, 'F'}, {"socket", 1, 0, 'k'}, {"all", 0, 0, 'a'},
	{"lock", 1, 0, 'K'}, {"idle", 1, 0, 'i'}, {"ask", 1, 0, 'A'}, {"other", 1, 0, 'O'},
	{"after", 1, 0, 'T'}, {"beat", 1, 0, 'B'}, {"churn", 1, 0, 'u'},
	{"churn-mib", 1, 0, 'U'}, {"sink", 1, 0, 'I'}, {"vfork", 0, 0, 'V'}, {0, 0, 0, 0},
};

static bool set_switch(int option) {
	switch (option) {
	case 'o': flags.orphan = true; break;
	case 'f': flags.fork_hold = true; break;
	case 'S': flags.stop = true; break;
	case 'L': flags.leader_exits = true; break;
	case 't': flags.torch = true; break;
	case '2': flags.pieces = true; break;
	case 'a': flags.all = true; break;
	case 'V': flags.vfork = true; break;
	default: return false;
	}
	return true;
}

static void set(int option) {
	switch (option) {
	case 'm': flags.mib = atol(optarg); break;
	case 'g': flags.gpus = optarg; break;
	case 'c': flags.chunks = atol(optarg) > 0 ? atol(optarg) : 1; break;
	case 'l': flags.list = optarg; break;
	case 'n': flags.name = optarg; break;
	case 's': flags.sleep = atof(optarg); break;
	case 'w': flags.workers = atol(optarg); break;
	case 'W': flags.workers_life = atof(optarg); break;
	case 'e': flags.export = true, flags.socket = optarg; break;
	case 'F': flags.near_full = atol(optarg); break;
	case 'k': flags.socket = optarg; break;
	case 'K': flags.lock = optarg; break;
	case 'O': flags.other = optarg; break;
	case 'i': flags.idle = atol(optarg); break;
	case 'A': flags.ask = atol(optarg); break;
	case 'T': flags.after = optarg; break;
	case 'B': flags.beat = atol(optarg); break;
	case 'u': flags.churn = atol(optarg); break;
	case 'U': flags.churn_mib = atol(optarg); break;
	case 'I': flags.sink = atol(optarg); break;
	default: if (!set_switch(option)) exit(2);
	}
}

// What makes no sense together would make a scene that nobody asked for.
static const char *wrong(const char *verb) {
	bool forks = flags.fork_hold || flags.workers > 0;
	if (flags.workers < 0 || flags.workers > MAX_WORKERS) return "--workers takes up to 64";
	if (flags.after && (forks || flags.export || flags.beat)) return "--after goes with plain memory alone";
	if (flags.churn && flags.beat) return "--churn does not go with --beat";
	if (flags.beat && (flags.mib <= 0 || flags.export)) return "--beat needs memory in a context";
	if (!strcmp(verb, "alloc")) return flags.mib < 0 ? "--mib N" : NULL;
	if (!strncmp(verb, "ipc-", 4) && !flags.socket) return "--socket SOCKET";
	if (!strcmp(verb, "ipc-export") && flags.mib <= 0) return "--mib N";
	if (!strcmp(verb, "watch") && flags.mib <= 0) return "--mib N";
	if (!strcmp(verb, "probe") && (!flags.lock || (!flags.all && flags.mib <= 0))) return "--lock FILE and --mib N or --all";
	return NULL;
}

static const struct { const char *name; int words; void (*run)(void); } verbs[] = {
	{"alloc", 1, alloc}, {"holdfd", 2, hold}, {"holdctl", 1, hold_control},
	{"ipc-export", 1, export_shared}, {"ipc-import", 1, import_shared}, {"probe", 1, probe}, {"watch", 2, watch}, {"highest", 2, highest},
};

int main(int argc, char **argv) {
	signal(SIGPIPE, SIG_IGN);
	for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1; ) set(option);
	const char *verb = optind < argc ? argv[optind] : "", *bad;
	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
		if (strcmp(verb, verbs[i].name) || optind + verbs[i].words != argc) continue;
		if ((bad = wrong(verb))) {
			fprintf(stderr, "cudajob %s: %s\n", verb, bad);
			return 2;
		}
		if (verbs[i].words == 2) flags.socket = argv[optind + 1];
		begin();
		verbs[i].run();
		return 0;
	}
	fputs("usage: cudajob alloc|holdfd|holdctl|ipc-export|ipc-import|probe|watch|highest [flags]\n", stderr);
	return 2;
}
