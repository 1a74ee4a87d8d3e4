#define _GNU_SOURCE
#include "world.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fcntl.h>

static char dir[PATH_MAX];

// The environment is empty under a hook's backend: the world is found by where this code lies.
static void find_dir(void) {
	Dl_info info;
	if (!dladdr((void *)find_dir, &info) || !realpath(info.dli_fname, dir)) {
		// A program's own dli_fname is argv[0], which may be a bare name.
		ssize_t n = readlink("/proc/self/exe", dir, sizeof dir - 1);
		dir[n > 0 ? n : 0] = 0;
	}
	char *slash = strrchr(dir, '/');
	if (slash) *slash = 0;
}

const char *world_dir(void) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, find_dir);
	return dir;
}

char *world_path(char out[PATH_MAX], const char *name) {
	snprintf(out, PATH_MAX, "%s/%s", world_dir(), name);
	return out;
}

static char *trim(char *s) {
	while (*s == ' ' || *s == '\t') s++;
	for (char *end = s + strlen(s); end > s && (end[-1] == ' ' || end[-1] == '\t'); ) *--end = 0;
	return s;
}

// A world.conf as it was at one moment; one is read once.
struct conf {
	struct stat file;
	const char *keys[MAX_KEYS], *values[MAX_KEYS];
	int n, sorted; // the first so many keys are in order, as fakegpu.World writes them; what a test appends is not
	char text[];
};

static void parse(struct conf *c) {
	char *rest = c->text, *line;
	while ((line = strsep(&rest, "\n")) && c->n < MAX_KEYS) {
		char *value = strchr(line, '=');
		if (line[0] == '#' || !value) continue;
		*value++ = 0;
		c->keys[c->n] = trim(line);
		c->values[c->n] = trim(value);
		bool next = c->sorted == c->n && (c->n == 0 || strcmp(c->keys[c->n - 1], c->keys[c->n]) < 0);
		c->n++;
		if (next) c->sorted = c->n;
	}
}

static bool same_file(const struct stat *a, const struct stat *b) {
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       !memcmp(&a->st_mtim, &b->st_mtim, sizeof a->st_mtim) && !memcmp(&a->st_ctim, &b->st_ctim, sizeof a->st_ctim);
}

static struct conf *read_conf(const char *path) {
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0) return NULL;
	struct conf *c = calloc(1, sizeof *c + st.st_size + 1);
	ssize_t n = c ? read(fd, c->text, st.st_size) : -1;
	close(fd);
	if (n < 0) return NULL;
	c->file = st;
	parse(c);
	return c;
}

// What was read before is not freed: another thread may be looking into it.
void world_load(struct world *w) {
	static _Atomic(struct conf *) last;
	char path[PATH_MAX];
	struct stat now;
	struct conf *c = atomic_load(&last);
	if (c && stat(world_path(path, "world.conf"), &now) == 0 && same_file(&c->file, &now)) {
		w->conf = c;
		return;
	}
	w->conf = c = read_conf(world_path(path, "world.conf"));
	if (!c) {
		fprintf(stderr, "fakegpu: read %s: %m\n", path);
		_exit(97);
	}
	atomic_store(&last, c);
}

static const char *find(const struct conf *c, const char *key) {
	for (int i = c->sorted; i < c->n; i++)
		if (!strcmp(c->keys[i], key)) return c->values[i];
	for (int low = 0, high = c->sorted; low < high; ) {
		int middle = (low + high) / 2, order = strcmp(key, c->keys[middle]);
		if (!order) return c->values[middle];
		if (order < 0) high = middle;
		else low = middle + 1;
	}
	return NULL;
}

const char *world_text(const struct world *w, int gpu, const char *key, const char *fallback) {
	char name[128];
	if (gpu == ANY_GPU) snprintf(name, sizeof name, "%s", key);
	else snprintf(name, sizeof name, "gpu%d.%s", gpu, key);
	const char *value = find(w->conf, name);
	return value ? value : fallback;
}

long long world_num(const struct world *w, int gpu, const char *key, long long fallback) {
	const char *value = world_text(w, gpu, key, NULL);
	return value ? strtoll(value, NULL, 0) : fallback;
}

int world_cards(const struct world *w) {
	long long n = world_num(w, ANY_GPU, "gpus", 0);
	return n < 0 ? 0 : n > MAX_GPUS ? MAX_GPUS : (int)n;
}

int world_card(const struct world *w, int index) {
	for (int gpu = 0; index >= 0 && gpu < world_cards(w); gpu++)
		if (!world_num(w, gpu, "excluded", 0) && index-- == 0) return gpu;
	return -1;
}

const char *mig_text(const struct world *w, int gpu, int instance, const char *key, const char *fallback) {
	char name[64];
	snprintf(name, sizeof name, "mig%d_%s", instance, key);
	return world_text(w, gpu, name, fallback);
}

long long mig_num(const struct world *w, int gpu, int instance, const char *key, long long fallback) {
	const char *value = mig_text(w, gpu, instance, key, NULL);
	return value ? strtoll(value, NULL, 0) : fallback;
}

bool mig_exists(const struct world *w, int gpu, int instance) {
	return world_num(w, gpu, "mig", 0) == 1 && instance >= 0 && instance < MAX_INSTANCES &&
	       mig_num(w, gpu, instance, "mib", 0) > 0;
}
