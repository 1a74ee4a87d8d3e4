/*
 * Lets Slurm's cgroup/v2 plugin run on a host where cgroup v1 is mounted beside v2. slurmd refuses such a
 * hybrid ("Hybrid mode is not supported") when /proc/PID/cgroup has a line before "0::". Preloaded into slurmd,
 * this library answers opens of that file with a copy that holds only the "0::" line. Everything else
 * is passed on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int (*open_fn)(const char *, int, ...);

static int is_proc_cgroup(const char *path)
{
	static const char head[] = "/proc/", tail[] = "/cgroup";
	size_t n = path ? strlen(path) : 0;

	return n > sizeof head - 1 + sizeof tail - 1 && strncmp(path, head, sizeof head - 1) == 0 &&
	       strcmp(path + n - (sizeof tail - 1), tail) == 0 && !strstr(path, "/sys/");
}

static int real_open(const char *path, int flags, mode_t mode)
{
	static open_fn next;

	if (!next)
		next = (open_fn)dlsym(RTLD_NEXT, "open");
	return next(path, flags, mode);
}

/* Copies the "0::" line of the open file to a new one in memory. */
static int only_v2(int fd)
{
	char text[8192];
	ssize_t n = read(fd, text, sizeof text - 1);
	char *line, *end;
	int copy;

	close(fd);
	text[n > 0 ? n : 0] = '\0';
	line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
	if (!line)
		line = text + strlen(text);
	else if (*line == '\n')
		line++;
	end = strchr(line, '\n');
	copy = memfd_create("cgroup", MFD_CLOEXEC);
	if (copy < 0)
		return -1;
	n = end ? end + 1 - line : (ssize_t)strlen(line);
	if (write(copy, line, n) != n || lseek(copy, 0, SEEK_SET) != 0) {
		close(copy);
		return -1;
	}
	return copy;
}

static int shown_open(const char *path, int flags, mode_t mode)
{
	int fd = real_open(path, flags, mode);

	if (fd < 0 || !is_proc_cgroup(path))
		return fd;
	return only_v2(fd);
}

static mode_t mode_of(int flags, va_list args)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = mode_of(flags, args);
	va_end(args);
	return shown_open(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = mode_of(flags, args);
	va_end(args);
	return shown_open(path, flags | O_LARGEFILE, mode);
}

int __open_2(const char *path, int flags)
{
	return shown_open(path, flags, 0);
}

int __open64_2(const char *path, int flags)
{
	return shown_open(path, flags | O_LARGEFILE, 0);
}

static FILE *shown_fopen(const char *symbol, const char *path, const char *mode)
{
	FILE *(*next)(const char *, const char *) = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, symbol);
	int fd;

	if (!is_proc_cgroup(path))
		return next(path, mode);
	fd = shown_open(path, O_RDONLY | O_CLOEXEC, 0);
	return fd < 0 ? NULL : fdopen(fd, "r");
}

FILE *fopen(const char *path, const char *mode)
{
	return shown_fopen("fopen", path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
	return shown_fopen("fopen64", path, mode);
}
