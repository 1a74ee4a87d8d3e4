package oom

import "strings"

// host are the messages about the node's own memory. "Killed" alone is none: whoever cancels a job gets it too.
func host() []rule {
	return []rule{
		{"slurm", Host, Slurm, []string{"slurmstepd: error: Detected ", "oom", "kill event"}, false, false, readSlurm},
		{"slurm", Host, Slurm, []string{"slurmstepd: error: ", "killed by the cgroup out-of-memory handler"}, false, false, readSlurm},
		{"slurm", Host, Slurm, []string{"slurmstepd: error: ", "xceeded ", "memory limit"}, false, false, readSlurm},
		{"srun", Host, Slurm, []string{"srun: error: ", ": Out Of Memory"}, false, false, readSlurm},
		{"torch host", Host, PyTorch, []string{"DefaultCPUAllocator: ", "you tried to allocate "}, false, false, readHost},
		{"torch shm", Host, PyTorch, []string{"Unexpected bus error encountered in worker. This might be caused by insufficient shared memory"}, false, false, plainly},
		{"numpy", Host, Other, []string{"MemoryError: Unable to allocate "}, false, false, readHost},
		{"memory error", Host, Other, []string{"MemoryError"}, false, false, readMemoryError},
		{"bad_alloc", Host, Other, []string{"instance of 'std::bad_alloc'"}, false, false, plainly},
		{"bad_alloc", Host, Other, []string{"std::bad_alloc"}, false, false, readBadAlloc},
		{"torch mmap", Host, PyTorch, []string{"unable to mmap ", "Cannot allocate memory"}, false, false, readHost},
		{"segment", Host, Other, []string{Segment}, false, false, readSegment},
		{"compiler", Host, Other, []string{"out of memory allocating ", " bytes after a total of "}, false, false, readCompiler},
		{"errno", Host, Other, []string{"[Errno 12] Cannot allocate memory"}, false, false, plainly},
		{"errno", Host, Other, []string{"fork: Cannot allocate memory"}, false, false, plainly},
	}
}

// Segment is what the dynamic loader says of a library that it could not map: a small ulimit -v does that to a large one.
// Without the system's words for the error behind it, it may also be a folder from which nothing may be executed.
const Segment = "failed to map segment from shared object"

// Refused is the system's word for memory that it does not give (ENOMEM).
const Refused = "Cannot allocate memory"

// readSegment leaves out what was forbidden: a noexec mount, SELinux.
func readSegment(m *Message, c context) bool {
	why := strings.TrimPrefix(c.text, Segment)
	return afterError(m, c) && (why == "" || strings.HasPrefix(why, ": "+Refused))
}

// readCompiler reads GCC's own allocator, whatever it compiles.
func readCompiler(m *Message, c context) bool {
	m.Asked = after(c.text, "out of memory allocating ")
	return strings.HasPrefix(c.before, "cc1") && strings.HasSuffix(c.before, ": ")
}

// readSlurm takes Slurm's own lines, which begin with the program's name.
func readSlurm(_ *Message, c context) bool { return c.before == "" }

func readHost(m *Message, c context) bool {
	m.Asked = after(c.text, "tried to allocate ", "Unable to allocate ", "unable to mmap ")
	return m.Asked.Known() && !strings.HasPrefix(c.before, "#")
}

// readMemoryError takes Python's exception where it is the whole line, or begins it.
func readMemoryError(_ *Message, c context) bool {
	rest := strings.TrimPrefix(c.text, "MemoryError")
	return c.before == "" && (rest == "" || strings.HasPrefix(rest, ": ") && !strings.Contains(strings.ToLower(rest), "cuda"))
}

// readBadAlloc takes C++'s exception where nothing says that it was for a card's memory.
func readBadAlloc(_ *Message, c context) bool {
	return c.text == "std::bad_alloc" && strings.HasSuffix(strings.TrimSpace(c.before), ":") && said(c.before)
}
