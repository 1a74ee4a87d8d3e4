// The driver's bookkeeping: who holds how much of which card.
#define _GNU_SOURCE
#include "world.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// The sequence number at both ends tells a reader that it caught a writer half-way. Fixed widths: a rewrite
// never leaves a longer text's tail.
#define LEDGER_OUT \
	"seq %020llu\npid %010d\nstart %020llu\ngpu %02d\nlist %-8s\ncontext %020llu\nhidden %020llu\n" \
	"memory %020llu\nmapped %020llu\nblocks %020llu\nlow %d\nend %020llu\n"
#define LEDGER_IN \
	"seq %llu pid %d start %llu gpu %d list %15s context %llu hidden %llu memory %llu mapped %llu blocks %llu low %d end %llu"

bool alloc_write(int fd, struct ledger *l) {
	char text[512];
	l->seq++;
	int n = snprintf(text, sizeof text, LEDGER_OUT, l->seq, l->pid, l->start, l->gpu, l->list, l->context,
	                 l->hidden, l->memory, l->mapped, l->blocks, l->low, l->seq);
	return pwrite(fd, text, n, 0) == n;
}

bool alloc_read(int fd, struct ledger *l) {
	for (int tries = 0; tries < 100; tries++) {
		char text[512];
		ssize_t n = pread(fd, text, sizeof text - 1, 0);
		if (n <= 0) return false;
		text[n] = 0;
		unsigned long long end;
		if (sscanf(text, LEDGER_IN, &l->seq, &l->pid, &l->start, &l->gpu, l->list, &l->context, &l->hidden,
		           &l->memory, &l->mapped, &l->blocks, &l->low, &end) == 12 && l->seq == end)
			return true;
	}
	return false;
}

bool alloc_locked(int fd) {
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool alloc_share(int fd) {
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
	return alloc_locked(fd) && fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

// /proc/self is this process as the mounted /proc numbers it: in a PID namespace of its own, but with the host's
// /proc, a process signs with the PID the host's driver would list.
void alloc_sign(struct ledger *l) {
	char text[1024];
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
	if (fd >= 0) close(fd);
	text[n > 0 ? n : 0] = 0;
	char *p = strrchr(text, ')'); // the name before it may hold anything
	for (int field = 2; p && field < 22; field++) p = strchr(p + 1, ' ');
	l->pid = p ? atoi(text) : getpid();
	l->start = p ? strtoull(p, NULL, 10) : 0;
}

// The file gets its lasting name only when locked and written: no reader sees it before it counts.
int alloc_create(const struct ledger *l, char file[PATH_MAX]) {
	static atomic_int number;
	int serial = atomic_fetch_add(&number, 1);
	char fresh[PATH_MAX], name[96];
	snprintf(name, sizeof name, "alloc/.new-%d-%llu-%d", l->pid, l->start, serial);
	world_path(fresh, name);
	snprintf(name, sizeof name, "alloc/%d-%llu-%d", l->pid, l->start, serial);
	world_path(file, name);
	int fd = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	struct flock lock = {.l_type = strcmp(l->list, SHARED) ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET};
	struct ledger copy = *l;
	if (fd >= 0 && fchmod(fd, 0644) == 0 && fcntl(fd, F_OFD_SETLK, &lock) == 0 && alloc_write(fd, &copy) &&
	    rename(fresh, file) == 0)
		return fd;
	if (fd >= 0) {
		unlink(fresh);
		close(fd);
	}
	return -1;
}

int alloc_guard(void) {
	char path[PATH_MAX];
	int fd = open(world_path(path, "alloc/.guard"), O_RDWR | O_CLOEXEC);
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	if (fd >= 0) fcntl(fd, F_OFD_SETLKW, &lock);
	return fd;
}

// While a keeper runs, a released file counts until the keeper has removed it, that is until teardown is over.
// Without one, released is gone: nobody invents a transient long after.
static bool keeper_runs(void) {
	char path[PATH_MAX];
	int fd = open(world_path(path, "alloc/.keeper"), O_RDONLY | O_CLOEXEC);
	bool runs = fd >= 0 && alloc_locked(fd);
	if (fd >= 0) close(fd);
	return runs;
}

static bool read_file(int alloc, const char *name, bool keeper, struct ledger *l) {
	int fd = openat(alloc, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0) return false;
	bool counts = (alloc_locked(fd) || keeper) && alloc_read(fd, l);
	struct stat st;
	if (counts && fstat(fd, &st) == 0 && st.st_nlink == 0) counts = false; // freed since it was listed
	close(fd);
	return counts;
}

static int read_all(int gpu, struct ledger *out, int max) {
	char path[PATH_MAX];
	bool keeper = keeper_runs();
	DIR *d = opendir(world_path(path, "alloc"));
	int n = 0;
	for (struct dirent *e; d && n < max && (e = readdir(d)); )
		if (e->d_name[0] != '.' && read_file(dirfd(d), e->d_name, keeper, &out[n]) && out[n].gpu == gpu) n++;
	if (d) closedir(d);
	return n;
}

static void dim(struct ledger *l) {
	if (!l->low) return;
	l->hidden = 0;
	l->memory = l->mapped = 0;
	l->context = l->context ? LOW_BYTES : 0;
}

static bool same(const struct ledger *a, const struct ledger *b) {
	return a->pid == b->pid && a->start == b->start;
}

// The driver lists a client that has a context, with all the memory that client created and that still lives.
static void list_client(const struct ledger *all, int n, const struct ledger *client, struct usage *u) {
	if (u->n == MAX_LISTED) return;
	struct listed *p = &u->processes[u->n++];
	p->pid = client->pid;
	p->start = client->start;
	memcpy(p->list, client->list, sizeof p->list);
	p->bytes = client->context + client->mapped;
	for (int i = 0; i < n; i++)
		if (same(&all[i], client)) p->bytes += all[i].memory;
}

void world_usage(const struct world *w, int gpu, struct usage *u) {
	static _Thread_local struct ledger all[MAX_LISTED];
	int n = read_all(gpu, all, MAX_LISTED);
	u->total = world_num(w, gpu, "total_mib", 0) * MIB;
	u->reserved = world_num(w, gpu, "reserved_mib", 0) * MIB;
	u->used = world_num(w, gpu, "extra_mib", 0) * MIB;
	u->n = 0;
	for (int i = 0; i < n; i++) dim(&all[i]);
	for (int i = 0; i < n; i++) {
		u->used += all[i].context + all[i].hidden + all[i].memory;
		if (all[i].context) list_client(all, n, &all[i], u);
	}
	if (u->used > u->total - u->reserved) u->used = u->total - u->reserved;
	u->free = u->total - u->reserved - u->used;
}
