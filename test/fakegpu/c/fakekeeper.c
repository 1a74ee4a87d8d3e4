// fakekeeper plays the part of the driver that tears memory down: it sees the real moment in which the last
// reference to a ledger file goes, lets the file count for the measured time, then removes it.
//
// usage: fakekeeper     until SIGTERM, or until its stdin ends where that is a pipe; prints "ready"
#define _GNU_SOURCE
#include "world.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CHUNKED 64 // blocks from which teardown is the jumpy one: measured with 2 MiB blocks

struct dying {
	char name[NAME_MAX + 1];
	long long since, lasts; // ms
	bool jumpy, low;
	bool held; // one holder of several let go of it: not dying yet
};
static struct dying table[MAX_LISTED];
static int dying;
static char alloc_dir[PATH_MAX];
static struct world w;

static long long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static char *path_of(char out[PATH_MAX], const char *name) {
	if (snprintf(out, PATH_MAX, "%s/%s", alloc_dir, name) >= PATH_MAX) exit(1);
	return out;
}

static void show_low(struct dying *d, bool low) {
	char path[PATH_MAX];
	struct ledger l;
	int fd = d->low == low ? -1 : open(path_of(path, d->name), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0) return;
	if (alloc_read(fd, &l)) {
		l.low = low;
		alloc_write(fd, &l);
	}
	close(fd);
	d->low = low;
}

static void stall(bool on) {
	char path[PATH_MAX];
	path_of(path, ".stall");
	if (!on) unlink(path);
	else close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

static void begin(const char *name) {
	for (int i = 0; i < dying; i++)
		if (!strcmp(table[i].name, name)) return; // our own writing closed it
	char path[PATH_MAX];
	struct ledger l;
	int fd = open(path_of(path, name), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0) return; // freed, not abandoned
	bool read = alloc_read(fd, &l);
	bool held = read && !strcmp(l.list, SHARED); // others may hold it; the event comes before its own lock is gone
	close(fd);
	world_load(&w);
	const char *curve = world_text(&w, ANY_GPU, "teardown", "auto");
	if (!read || dying == MAX_LISTED || !strcmp(curve, "none")) {
		unlink(path);
		return;
	}
	struct dying *d = &table[dying++];
	*d = (struct dying){.since = now(), .held = held};
	snprintf(d->name, sizeof d->name, "%s", name);
	d->jumpy = !strcmp(curve, "jumpy") || (!strcmp(curve, "auto") && l.blocks > CHUNKED);
	d->lasts = world_num(&w, ANY_GPU, "teardown_ms", d->jumpy ? 110 : 150);
}

static bool still_held(struct dying *d) {
	char path[PATH_MAX];
	int fd = d->held ? open(path_of(path, d->name), O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
	if (fd < 0) return false;
	bool locked = alloc_locked(fd);
	close(fd);
	if (locked) d->since = now();
	return locked;
}

// all - LOW_BYTES - all - nothing, a third of the time each; the first memory call in the last third blocks.
static bool step(struct dying *d) {
	if (still_held(d)) return true;
	long long age = now() - d->since;
	char path[PATH_MAX];
	if (age >= d->lasts) {
		unlink(path_of(path, d->name));
		if (d->jumpy) stall(false);
		return false;
	}
	if (!d->jumpy) return true;
	bool low = age >= d->lasts / 3 && age < 2 * d->lasts / 3;
	if (d->low && !low) stall(true);
	show_low(d, low);
	return true;
}

static void step_all(void) {
	for (int i = 0; i < dying; )
		if (step(&table[i])) i++;
		else table[i] = table[--dying];
}

static void read_events(int inotify) {
	char buf[16384] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n = read(inotify, buf, sizeof buf);
	for (char *p = buf; p < buf + n; ) {
		struct inotify_event *e = (struct inotify_event *)p;
		if (e->len && e->name[0] != '.') begin(e->name);
		p += sizeof *e + e->len;
	}
}

// What was released while nobody watched is long gone.
static void sweep(void) {
	DIR *d = opendir(alloc_dir);
	char path[PATH_MAX];
	for (struct dirent *e; d && (e = readdir(d)); ) {
		if (e->d_name[0] == '.') continue;
		int fd = open(path_of(path, e->d_name), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (fd >= 0 && !alloc_locked(fd)) unlink(path);
		if (fd >= 0) close(fd);
	}
	if (d) closedir(d);
	stall(false);
}

static void claim(void) {
	char path[PATH_MAX];
	int fd = open(path_of(path, ".keeper"), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	if (fd < 0 || fcntl(fd, F_OFD_SETLK, &lock)) {
		perror("fakekeeper: another one runs, or claim");
		exit(1);
	}
}

int main(void) {
	world_path(alloc_dir, "alloc");
	int inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (inotify < 0 || inotify_add_watch(inotify, alloc_dir, IN_CLOSE_WRITE) < 0) {
		perror("fakekeeper: watch");
		return 1;
	}
	sweep();
	claim();
	struct stat st;
	bool bound = fstat(0, &st) == 0 && S_ISFIFO(st.st_mode);
	puts("ready");
	fflush(stdout);
	for (;;) {
		struct pollfd p[2] = {{inotify, POLLIN, 0}, {bound ? 0 : -1, POLLIN, 0}};
		if (poll(p, 2, dying ? 5 : -1) < 0) return 1;
		if (p[1].revents) return 0;
		if (p[0].revents) read_events(inotify);
		step_all();
	}
}
