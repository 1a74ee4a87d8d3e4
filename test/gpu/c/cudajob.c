// cudajob plays the user's CUDA program on a real GPU, through the driver API alone: it takes memory, uses it, and
// keeps it in one of the ways real programs do. Once it holds what it was asked for it prints one line:
//
//   ready pid=PID gpu=UUID bytes=N used=M
//
// bytes is what it allocated, used what cuMemGetInfo says is gone from the whole card: its own context included,
// and everybody else's memory too. Its flags are a part of test/fakegpu's fakecuda's, so that one may stand for
// the other.
//
// usage: cudajob alloc --mib N [--gpu I] [--chunks C] [--sleep S] [--export SOCKET]
//   --gpu I            CUDA ordinal (0)              --chunks C        in C blocks
//   --sleep S          then exit; without it, until killed
//   --export SOCKET    memory as a descriptor, handed to a waiting holdfd
// usage: cudajob holdfd SOCKET
//   ready when it listens; keeps what one --export hands it; touches no CUDA
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MIB (1024ULL * 1024)
#define LIFETIME 600 // seconds after which even a forgotten holder gives its memory back

typedef struct {
	int type, handles;
	struct { int type, id; } location;
	void *win32;
	unsigned char flags[8];
} Prop;

static struct {
	int (*init)(unsigned), (*get)(int *, int), (*uuid)(unsigned char *, int), (*uuid_old)(unsigned char *, int);
	int (*retain)(void **, int), (*current)(void *), (*info)(size_t *, size_t *);
	int (*alloc)(unsigned long long *, size_t), (*set)(unsigned long long, unsigned char, size_t);
	int (*read)(void *, unsigned long long, size_t);
	int (*create)(unsigned long long *, size_t, const Prop *, unsigned long long);
	int (*share)(int *, unsigned long long, int, unsigned long long);
	int (*name)(int, const char **);
} cu;

static void die(const char *what, const char *why) {
	fprintf(stderr, "cudajob: %s: %s\n", what, why);
	exit(1);
}

static void check(int rc, const char *call) {
	const char *name = NULL;
	if (rc == 0) return;
	cu.name(rc, &name);
	fprintf(stderr, "cudajob: %s: %d %s\n", call, rc, name ? name : "?");
	exit(1);
}

static void load(void) {
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib) die("load the driver", dlerror());
	const struct { void *slot; const char *name, *older; } wanted[] = {
		{&cu.init, "cuInit", NULL}, {&cu.get, "cuDeviceGet", NULL}, {&cu.uuid, "cuDeviceGetUuid_v2", "cuDeviceGetUuid"},
		{&cu.retain, "cuDevicePrimaryCtxRetain", NULL}, {&cu.current, "cuCtxSetCurrent", NULL},
		{&cu.info, "cuMemGetInfo_v2", NULL}, {&cu.alloc, "cuMemAlloc_v2", NULL}, {&cu.set, "cuMemsetD8_v2", NULL},
		{&cu.read, "cuMemcpyDtoH_v2", NULL}, {&cu.create, "cuMemCreate", NULL},
		{&cu.share, "cuMemExportToShareableHandle", NULL}, {&cu.name, "cuGetErrorName", NULL},
	};
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		void *f = dlsym(lib, wanted[i].name);
		if (!f && wanted[i].older) f = dlsym(lib, wanted[i].older);
		if (!f) die("look up a driver function", wanted[i].name);
		memcpy(wanted[i].slot, &f, sizeof f);
	}
}

// Memory

// take allocates one block, writes all of it and reads its end back, as a job would.
static void take(unsigned long long bytes) {
	unsigned long long at;
	unsigned char last = 0;
	check(cu.alloc(&at, bytes), "cuMemAlloc");
	check(cu.set(at, 0x5a, bytes), "cuMemsetD8");
	check(cu.read(&last, at + bytes - 1, 1), "cuMemcpyDtoH");
	if (last != 0x5a) die("use memory", "read back something else");
}

static int export_block(int device, unsigned long long bytes) {
	Prop prop = {.type = 1, .handles = 1, .location = {1, device}}; // pinned, a POSIX descriptor, on this device
	unsigned long long handle;
	int fd = -1;
	check(cu.create(&handle, bytes, &prop, 0), "cuMemCreate");
	check(cu.share(&fd, handle, 1, 0), "cuMemExportToShareableHandle");
	return fd;
}

static void print_ready(int device, unsigned long long bytes) {
	unsigned char id[16];
	size_t left = 0, total = 0;
	check(cu.uuid(id, device), "cuDeviceGetUuid");
	check(cu.info(&left, &total), "cuMemGetInfo");
	printf("ready pid=%d gpu=GPU-", getpid());
	for (int i = 0; i < 16; i++) printf(i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", id[i]);
	printf(" bytes=%llu used=%zu\n", bytes, total - left);
	fflush(stdout);
}

// Descriptors

static struct sockaddr_un address(const char *path) {
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof a.sun_path) die("socket path is too long", path);
	strcpy(a.sun_path, path);
	return a;
}

union control {
	char bytes[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

static void hand_over(const char *path, int fd) {
	struct sockaddr_un a = address(path);
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s < 0 || connect(s, (struct sockaddr *)&a, sizeof a)) die("connect to the holder", strerror(errno));
	char byte = 'm';
	union control control = {0};
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	// The answer says that the other end holds it.
	if (sendmsg(s, &m, 0) != 1 || read(s, &byte, 1) != 1) die("hand memory over", strerror(errno));
	close(s);
	close(fd);
}

static void hold(const char *path) {
	struct sockaddr_un a = address(path);
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&a, sizeof a) || listen(listener, 1))
		die("listen", strerror(errno));
	printf("ready pid=%d\n", getpid());
	fflush(stdout);
	int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	char byte;
	union control control;
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
	if (s < 0 || recvmsg(s, &m, MSG_CMSG_CLOEXEC) != 1 || write(s, &byte, 1) != 1) die("receive memory", strerror(errno));
	for (;;) pause();
}

// Verbs

static struct { long mib, chunks, sleep; int gpu; const char *socket; } flags = {.chunks = 1, .sleep = -1};

static int alloc(void) {
	int device;
	void *context;
	load();
	check(cu.init(0), "cuInit");
	check(cu.get(&device, flags.gpu), "cuDeviceGet");
	check(cu.retain(&context, device), "cuDevicePrimaryCtxRetain");
	check(cu.current(context), "cuCtxSetCurrent");
	unsigned long long bytes = flags.mib * MIB;
	if (flags.socket) hand_over(flags.socket, export_block(device, bytes));
	else for (long i = 0; i < flags.chunks; i++) take(bytes / flags.chunks);
	print_ready(device, bytes);
	if (flags.sleep < 0) for (;;) pause();
	sleep((unsigned)flags.sleep);
	return 0;
}

static const struct option options[] = {
	{"mib", 1, 0, 'm'}, {"gpu", 1, 0, 'g'}, {"chunks", 1, 0, 'c'}, {"sleep", 1, 0, 's'}, {"export", 1, 0, 'e'}, {0, 0, 0, 0},
};

static void set(int option) {
	switch (option) {
	case 'm': flags.mib = atol(optarg); break;
	case 'g': flags.gpu = atoi(optarg); break;
	case 'c': flags.chunks = atol(optarg) > 0 ? atol(optarg) : 1; break;
	case 's': flags.sleep = atol(optarg); break;
	case 'e': flags.socket = optarg; break;
	default: exit(2);
	}
}

int main(int argc, char **argv) {
	alarm(LIFETIME);
	for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1; ) set(option);
	const char *verb = optind < argc ? argv[optind] : "";
	if (!strcmp(verb, "alloc") && optind + 1 == argc && flags.mib > 0) return alloc();
	if (!strcmp(verb, "holdfd") && optind + 2 == argc) {
		hold(argv[optind + 1]);
		return 0;
	}
	fputs("usage: cudajob alloc --mib N [flags] | cudajob holdfd SOCKET\n", stderr);
	return 2;
}
