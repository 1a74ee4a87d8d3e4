// Reads the files that bookend-amd reads for one look, and makes nothing of them: what such a look costs at least.
// usage: look PROC SYS
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char text[1 << 14], pid[32];
static const char *proc, *sys;

static void get(const char *path) {
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) return;
	while (read(fd, text, sizeof text) > 0) {}
	close(fd);
}

static char *joined(const char *a, const char *b, const char *c) {
	static char paths[8][4096];
	static int next;
	char *path = paths[next++ % 8];
	if (snprintf(path, sizeof paths[0], "%s/%s%s%s", a, b, *c ? "/" : "", c) >= (int)sizeof paths[0]) abort();
	return path;
}

static void each(const char *folder, void (*do_)(const char *folder, const char *name)) {
	char path[4096];
	snprintf(path, sizeof path, "%s", folder);
	DIR *d = opendir(path);
	if (!d) return;
	for (struct dirent *e; (e = readdir(d));)
		if (e->d_name[0] != '.') do_(path, e->d_name);
	closedir(d);
}

static void card(const char *folder, const char *name) {
	(void)folder;
	if (!strchr(name, ':')) return;
	const char *device = joined(sys, "bus/pci/devices", name);
	const char *files[] = {"unique_id", "product_name", "mem_info_vram_total", "mem_info_vram_used", "gpu_busy_percent",
		"mem_busy_percent"};
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) get(joined(device, files[i], ""));
}

static void node(const char *folder, const char *name) {
	get(joined(folder, name, "gpu_id"));
	get(joined(folder, name, "properties"));
}

static void queue(const char *folder, const char *name) { get(joined(folder, name, "gpuid")); }

static void memory(const char *folder, const char *name) {
	if (!strncmp(name, "vram_", 5)) get(joined(folder, name, ""));
	if (!strcmp(name, "queues")) each(joined(folder, name, ""), queue);
}

static void descriptor(const char *folder, const char *name) {
	char target[256];
	ssize_t n = readlink(joined(folder, name, ""), target, sizeof target);
	if (n < 9 || memcmp(target, "/dev/dri/", 9)) return;
	get(joined(proc, joined(pid, "fdinfo", name), ""));
}

static void process(const char *folder, const char *name) {
	snprintf(pid, sizeof pid, "%s", name);
	each(joined(folder, name, ""), memory);
	each(joined(proc, pid, "fd"), descriptor);
}

int main(int argc, char **argv) {
	if (argc != 3) return 64;
	proc = argv[1], sys = argv[2];
	get(joined(sys, "module/amdgpu/version", ""));
	get(joined(proc, "sys/kernel/osrelease", ""));
	each(joined(sys, "bus/pci/drivers/amdgpu", ""), card);
	each(joined(sys, "class/kfd/kfd/topology/nodes", ""), node);
	each(joined(sys, "class/kfd/kfd/proc", ""), process);
	puts("looked");
	return 0;
}
