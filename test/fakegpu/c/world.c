#define _GNU_SOURCE
#include "world.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static void parse(struct world *w) {
	w->n = w->sorted = 0;
	char *rest = w->text, *line;
	while ((line = strsep(&rest, "\n")) && w->n < MAX_KEYS) {
		char *value = strchr(line, '=');
		if (line[0] == '#' || !value) continue;
		*value++ = 0;
		w->keys[w->n] = trim(line);
		w->values[w->n] = trim(value);
		bool next = w->sorted == w->n && (w->n == 0 || strcmp(w->keys[w->n - 1], w->keys[w->n]) < 0);
		w->n++;
		if (next) w->sorted = w->n;
	}
}

void world_load(struct world *w) {
	char path[PATH_MAX];
	int fd = open(world_path(path, "world.conf"), O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, w->text, sizeof w->text - 1);
	if (n < 0) {
		fprintf(stderr, "fakegpu: read %s: %m\n", path);
		_exit(97);
	}
	close(fd);
	w->text[n] = 0;
	parse(w);
}

static const char *find(const struct world *w, const char *key) {
	for (int i = w->sorted; i < w->n; i++)
		if (!strcmp(w->keys[i], key)) return w->values[i];
	for (int low = 0, high = w->sorted; low < high; ) {
		int middle = (low + high) / 2, order = strcmp(key, w->keys[middle]);
		if (!order) return w->values[middle];
		if (order < 0) high = middle;
		else low = middle + 1;
	}
	return NULL;
}

const char *world_text(const struct world *w, int gpu, const char *key, const char *fallback) {
	char name[128];
	if (gpu == ANY_GPU) snprintf(name, sizeof name, "%s", key);
	else snprintf(name, sizeof name, "gpu%d.%s", gpu, key);
	const char *value = find(w, name);
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
