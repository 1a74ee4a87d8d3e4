package e2e

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/rig"
	"bookend/test/site"
)

// What a job left in shared memory is found while no job is on the node, by the word of Slurm too, with the job that left
// it; the next job's user reads how much it is.
func TestHostMemory(t *testing.T) {
	t.Parallel()
	hasSharedMemory(t)
	s := given(t, site.Options{Track: inCgroups()})
	users := cluster.Users(4)
	s.user, s.stranger = users[2], users[3]
	must.Do(t, os.Symlink("/dev/shm", filepath.Join(s.on.Dev("n1"), "shm")))
	s.emptiesMemory()
	s.hasOwnMemory()
	for range 2 {
		s.finds("n1", "")
	}
	left := s.runs(s.user, inMemory("fallocate -l 110M /dev/shm/{job}"), alone, oneGPU)
	found := fmt.Sprintf("shared memory 110 MiB (uid %s has 110 MiB in 1 file in /dev/shm, most in job%s; reported there at the end of job %[2]s)",
		must.Have(user.Lookup(s.user))(t).Uid, left)
	s.finds("n1", found)
	s.statusSays("n1", "health check found BKD-HOSTMEM")
	next := s.runs(s.stranger, "true", oneGPU)
	text := s.outputOf(next)
	s.inOrder("the output", text, "WARNING: n1: 110 MiB of the node's 1.0 GiB of memory were taken while no job was on it: shared memory 110 MiB",
		"sbatch --exclude=n1")
	must.Not(t, strings.Contains(text, "job"+string(left)), "another user's name in\n%s", text)

	busy := s.starts(s.user, "echo ready; "+s.waits("go")) // without GPUs: no record has it
	s.finds("n1", "")
	s.touches(s.user, "go")
	s.ends(busy)
	held := must.Have(s.on.Command(s.stranger, "salloc", "--no-shell", "-J", "held"))(t)
	out := must.Have(held.CombinedOutput())(t)
	s.finds("n1", "") // no process has it
	must.Do(t, s.on.Cancel(allocated(string(out))))
	s.untilNode("n1", "is idle", func(n cluster.NodeState) bool { return n.Has("IDLE") && !n.Has("COMPLETING") })
	s.finds("n1", found)

	must.Do(t, os.Remove("/dev/shm/job"+string(left)))
	s.finds("n1", "")
	text = s.outputOf(s.runs(s.stranger, "true", oneGPU))
	must.Not(t, strings.Contains(text, "memory were taken"), "%s", text)
}

func allocated(text string) cluster.JobID {
	_, id, _ := strings.Cut(text, "Granted job allocation ")
	id, _, _ = strings.Cut(id, "\n")
	return cluster.JobID(strings.TrimSpace(id))
}

// finds runs a health check, which finds this about the node's memory; "" is nothing.
func (s *story) finds(node, want string) {
	s.t.Helper()
	s.hasOwnMemory()
	s.checks(node)
	got := must.Read(s.t, filepath.Join(s.on.Dir, "run/state", node, "check.json"))
	must.Not(s.t, strings.Contains(got, "BKD-HOSTMEM") != (want != "") || !strings.Contains(got, want), "want %q in\n%s", want, got)
}

// hasOwnMemory gives the node a /proc of its own: with the processes of this cluster alone, and with 1 GiB of memory of which
// the jobs' files in /dev/shm take a part.
func (s *story) hasOwnMemory() {
	proc := filepath.Join(s.on.Dir, "proc")
	must.Do(s.t, os.RemoveAll(proc))
	must.Do(s.t, os.Mkdir(proc, 0o755))
	for _, e := range must.Have(os.ReadDir("/proc"))(s.t) {
		pid, err := strconv.Atoi(e.Name())
		own := func() bool { return rig.ReadProcess(pid).HasEnv("SLURM_CONF=" + s.on.ConfFile()) }
		if e.Name() != "meminfo" && (err != nil || own()) {
			must.Do(s.t, os.Symlink(filepath.Join("/proc", e.Name()), filepath.Join(proc, e.Name())))
		}
	}
	taken := int64(0)
	for _, path := range must.Have(filepath.Glob("/dev/shm/job*"))(s.t) {
		taken += must.Have(os.Stat(path))(s.t).Size() >> 10
	}
	const text = "MemTotal: %d kB\nMemAvailable: %d kB\nShmem: %d kB\nSUnreclaim: 0 kB\nHugetlb: 0 kB\n"
	must.Do(s.t, os.WriteFile(filepath.Join(proc, "meminfo"), []byte(fmt.Sprintf(text, 1<<20, 900<<10-taken, taken)), 0o644))
	config := must.Read(s.t, s.on.ConfigFile("n1"))
	if !strings.Contains(config, proc) {
		must.Do(s.t, os.WriteFile(s.on.ConfigFile("n1"), []byte(strings.Replace(config, "paths:\n", "paths:\n  proc: "+proc+"\n", 1)), 0o644))
	}
}
