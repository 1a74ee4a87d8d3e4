// nursery starts processes and keeps them until its standard input ends: thousands of them are cheap, as each is a copy
// of this small one.
//
//	nursery PROCESSES FDS MAPS FILLERS [ROLE ...]
//
// Each process has that many descriptors open and, beside those of its program, files mapped. FILLERS are the files,
// words in one argument. The first processes play the roles: they open the words of a role first, and one that begins
// with "=" is mapped and closed again. Their pids are printed once all processes have opened what they shall.

#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t nursery;

// fail ends the nursery, and the kernel with it all processes.
static void fail(const char *what)
{
	perror(what);
	kill(nursery, SIGKILL);
	exit(2);
}

// map maps a page; neighbours with other rights are not joined to one mapping.
static void map(const char *path, int rights)
{
	int fd = open(path, O_RDONLY);
	if (fd < 0 || mmap(NULL, 4096, rights, MAP_PRIVATE, fd, 0) == MAP_FAILED)
		fail(path);
	close(fd);
}

// play opens the words of a role.
static void play(char *role)
{
	for (char *word = strtok(role, " "); word; word = strtok(NULL, " "))
		if (*word == '=')
			map(word + 1, PROT_READ);
		else if (open(word, O_RDONLY) < 0)
			fail(word);
}

// live is what a process does. Its descriptors are 0, on which it says that it is ready, and what it opens.
static void live(int ready, int fds, char *role, char *fillers)
{
	char *words[16];
	int count = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(ready, 0);
	close(1);
	close_range(3, ~0U, 0); // 2 tells of failures, until the end
	if (role)
		play(role);
	for (char *word = strtok(fillers, " "); word && count < 16; word = strtok(NULL, " "))
		words[count++] = word;
	for (int fd = 0, i = 0; fd < fds - 1; i++)
		if ((fd = open(words[i % count], O_RDONLY)) < 0)
			fail(words[i % count]);
	write(0, "", 1);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	int ready[2];
	char byte;

	if (argc < 5 || pipe(ready))
		return 2;
	nursery = getpid();
	int processes = atoi(argv[1]), fds = atoi(argv[2]), roles = argc - 5;
	pid_t *pids = calloc(processes, sizeof *pids);
	for (int i = 0; i < atoi(argv[3]); i++)
		map("/proc/self/exe", i % 2 ? PROT_READ : PROT_READ | PROT_WRITE);
	for (int i = 0; i < processes; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			fail("fork");
		if (pids[i] == 0)
			live(ready[1], fds, i < roles ? argv[5 + i] : NULL, argv[4]);
	}
	close(ready[1]);
	for (int i = 0; i < processes; i++)
		if (read(ready[0], &byte, 1) != 1)
			fail("wait for processes");
	for (int i = 0; i < roles; i++)
		printf("%d\n", pids[i]);
	fclose(stdout);
	read(0, &byte, 1);
	for (int i = 0; i < processes; i++)
		kill(pids[i], SIGKILL);
	while (wait(NULL) > 0)
		;
	return 0;
}
