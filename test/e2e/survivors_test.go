package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// A daemon that a job leaves is named with the job only if it says so itself and the job alone can have begun it; what
// was there before, is another job's, another user's or forged is not.
func TestSurvivors(t *testing.T) {
	t.Parallel()
	hasSharedMemory(t) // nor those of another run on this host
	s := given(t, site.Options{Track: cluster.LinuxProc})
	users := cluster.Users(6) // not those of the stories next to it: a daemon without an environment may be of theirs
	s.user, s.stranger = users[4], users[5]
	const left = "this job left process PID (sleep) running"
	for _, tt := range []struct{ title, script, want, end string }{
		{"a daemon", "setsid sleep 987 & " + saysPID, left, "kill PID"},
		{"a daemon, twice forked", "(setsid sleep 987 & echo left=$!)", left, "kill PID"},
		{"none", "sleep 0.1", "", ""},
		{"a daemon that hides its job", "env -i setsid sleep 987 & " + saysPID,
			"job N or something else of its user left process PID (sleep) running", "kill PID"},
		{"a daemon that names another job", "SLURM_JOB_ID=1 setsid sleep 987 & " + saysPID, "", ""},
		{"a daemon of another node", "SLURMD_NODENAME=n2 setsid sleep 987 & " + saysPID, "", ""},
		{"an MPS daemon", program("nvidia-cuda-mps-control") + "CUDA_MPS_PIPE_DIRECTORY=$PWD/mps setsid ./nvidia-cuda-mps-control -d & " + saysPID,
			"this job left process PID (nvidia-cuda-mps) running", "echo quit | CUDA_MPS_PIPE_DIRECTORY=HOME/mps nvidia-cuda-mps-control"},
		{"an instance of Apptainer", "cp /bin/sleep starter; setsid bash -c \"exec -a 'Apptainer instance: ada [db]' ./starter 987\" & " + saysPID,
			"this job left process PID (starter) running", "apptainer instance stop db"},
		{"a podman monitor", program("conmon") + "setsid ./conmon -c " + strings.Repeat("0123456789abcdef", 4) + " & " + saysPID,
			"this job left process PID (conmon) running", "podman stop 0123456789ab"},
	} {
		s.tell(tt.title, func(s *story) {
			job := s.runs(s.user, tt.script, oneGPU)
			s.survives(job, tt.want, tt.end)
		})
	}
	s.tell("begun before the job, and forged", func(s *story) {
		last := must.Have(strconv.Atoi(string(s.runs(s.user, "true", oneGPU))))(s.t)
		s.daemon(s.user, fmt.Sprintf("SLURM_JOB_ID=%d", last+1))
		job := s.runs(s.user, "echo ready", oneGPU)
		must.Be(s.t, "the job", string(job), fmt.Sprint(last+1))
		s.survives(job, "", "")
	})
	s.tell("another user's, with this job's id", func(s *story) {
		job := s.starts(s.user, "echo ready; "+s.waits("go"), oneGPU)
		s.daemon(s.stranger, "SLURM_JOB_ID="+string(job))
		s.touches(s.user, "go")
		s.ends(job)
		s.survives(job, "", "")
	})
	s.tell("two jobs of one user at once", func(s *story) {
		first := s.starts(s.user, "setsid sleep 987 & "+saysPID+"; env -i setsid sleep 60 & echo ready; "+s.waits("go"), oneGPU)
		second := s.runs(s.user, "setsid sleep 987 & "+saysPID, oneGPU)
		s.survives(second, left, "kill PID")
		s.touches(s.user, "go")
		s.ends(first)
		s.survives(first, left, "kill PID")
	})
	s.tell("a container of a daemon", func(s *story) {
		job := s.starts(s.user, "echo ready; "+s.waits("go"), oneGPU)
		pid := s.daemon(s.user, "SLURM_JOB_ID="+string(job))
		if s.moves(pid, "docker/"+strings.Repeat("0123456789abcdef", 4)) {
			s.touches(s.user, "go")
			s.ends(job)
			s.survives(job, "", "")
		}
	})
	s.tell("a monitor of the user's manager", func(s *story) {
		job := s.starts(s.user, program("conmon")+"echo ready; "+s.waits("go"), oneGPU)
		pid := s.daemon(s.user, "A=1", filepath.Join(s.home(s.user), "conmon"), "-c", strings.Repeat("0123456789abcdef", 4))
		if s.moves(pid, "user.slice/user-9.slice/user@9.service/user.slice/libpod-conmon-x.scope") {
			s.touches(s.user, "go")
			s.ends(job)
			text := must.Have(s.on.Output(job))(s.t)
			s.inOrder("the output", text, fmt.Sprintf("job %s or something else of its user left process %d (conmon) running", job, pid),
				"End there: podman stop 0123456789ab")
		}
	})
	s.tell("a shell at a login", func(s *story) {
		job := s.starts(s.user, "echo ready; "+s.waits("go"), oneGPU)
		pid := s.daemon(s.user, "SLURM_JOB_ID="+string(job))
		if s.moves(pid, "user.slice/user-9.slice/session-3.scope") {
			s.touches(s.user, "go")
			s.ends(job)
			s.survives(job, "", "")
		}
	})
	s.tell("a process on a GPU, which another finding names", func(s *story) {
		job := s.runs(s.user, leavesOrphan, oneGPU)
		s.survives(job, "", "")
		s.showSays("n1", job, "BKD-ORPHAN")
	})
}

// Where Slurm tracks by cgroups, only what left its job's cgroup survives, and a live job's cgroup excuses its processes
// whatever they say.
func TestSurvivorsOfCgroups(t *testing.T) {
	t.Parallel()
	hasSharedMemory(t)
	s := given(t, site.Options{Track: inCgroups()})
	users := cluster.Users(8)
	s.user, s.stranger = users[6], users[7]
	s.tell("ended with its job", func(s *story) {
		s.survives(s.runs(s.user, "setsid sleep 987 & "+saysPID, oneGPU), "", "")
	})
	s.tell("out of its job's cgroup", func(s *story) {
		job := s.starts(s.user, "setsid sleep 987 & "+saysPID+"; echo ready; "+s.waits("go"), oneGPU)
		must.Do(s.t, cluster.Escape(s.leftBy(job)))
		s.touches(s.user, "go")
		s.ends(job)
		s.survives(job, "this job left process PID (sleep) running", "kill PID")
	})
	s.tell("forged, in another live job", func(s *story) {
		job := s.starts(s.user, "echo ready; "+s.waits("go"), oneGPU)
		other := s.starts(s.user, "SLURM_JOB_ID="+string(job)+" setsid sleep 987 & echo ready; "+s.waits("end"), oneGPU)
		s.touches(s.user, "go")
		s.ends(job)
		s.survives(job, "", "")
		s.touches(s.user, "end")
		s.ends(other)
		s.survives(other, "", "")
	})
}

// saysPID is the end of a line of a script: the job's log has the PID of what it began in the background.
const saysPID = "echo left=$!"

// program makes a program of this name in the job's directory, which only waits.
func program(name string) string {
	return fmt.Sprintf("printf '#!/bin/sh\\nsleep 987\\nexit\\n' > %[1]s; chmod +x %[1]s; ", name)
}

// daemon is a process of the user that no job began.
func (s *story) daemon(user, variable string, args ...string) (pid int) {
	if len(args) == 0 {
		args = []string{"sleep", "987"}
	}
	cmd := must.Have(s.on.Command(user, "env", append([]string{variable}, args...)...))(s.t)
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setpgid = true, false
	must.Do(s.t, cmd.Start())
	s.t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Wait() })
	s.until("the daemon runs", func() bool {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		return strings.TrimSpace(string(name)) == filepath.Base(args[0])
	})
	return cmd.Process.Pid
}

// moves puts a process into a cgroup of this name; false if the host has no hierarchy for that.
func (s *story) moves(pid int, name string) bool {
	hierarchy := "/sys/fs/cgroup/systemd"
	dir := filepath.Join(hierarchy, name)
	if unix.Access(filepath.Join(hierarchy, "cgroup.procs"), unix.W_OK) != nil || os.MkdirAll(dir, 0o755) != nil {
		return false
	}
	s.t.Cleanup(func() {
		_ = exec.Command("sh", "-c", `while read p; do echo $p > "$1/cgroup.procs"; done < "$2/cgroup.procs"; cd "$1" && rmdir -p "$3"`,
			"sh", hierarchy, dir, name).Run()
	})
	must.Do(s.t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(fmt.Sprint(pid)), 0))
	return true
}

// survives checks what a job's log says about what it left, and ends that. PID is the one that the job wrote.
func (s *story) survives(job cluster.JobID, want, end string) {
	text := must.Have(s.on.Output(job))(s.t)
	pid := ""
	if strings.Contains(text, "left=") {
		number := s.leftBy(job)
		pid = fmt.Sprint(number)
		s.t.Cleanup(func() { _ = syscall.Kill(-number, syscall.SIGKILL); _ = syscall.Kill(number, syscall.SIGKILL) })
	}
	if want == "" {
		must.Not(s.t, strings.Contains(text, "WARNING: n1:"), "job %s is told\n%s", job, text)
		return
	}
	fill := strings.NewReplacer("PID", pid, "job N", "job "+string(job), "HOME", s.home(s.user))
	end = strings.Replace(fill.Replace(end), "CUDA_MPS_"+pid, "CUDA_MPS_PID", 1)
	s.inOrder("the output", text, "WARNING: n1: "+fill.Replace(want), "End there: "+end)
	s.showSays("n1", job, "BKD-SURVIVOR")
	must.Not(s.t, strings.Contains(text, "DRAIN"), "%s", text)
}

// leftBy is the PID that a job wrote.
func (s *story) leftBy(job cluster.JobID) int {
	_, rest, _ := strings.Cut(must.Have(s.on.Output(job))(s.t), "left=")
	pid, _, _ := strings.Cut(rest, "\n")
	return must.Have(strconv.Atoi(pid))(s.t)
}
