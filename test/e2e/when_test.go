package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"bookend/test/cluster"
	"bookend/test/must"
)

const oneGPU = "--gres=gpu:1"

// script fills in what a job's script needs to know of the site: {cuda} is the user's CUDA program on the node
// where the script runs, {world} the folder it lies in. {job's cuda} is the program too, but what it leaves behind
// stays in the job's cgroups.
func (s *story) script(text string) string {
	world := filepath.Join(s.on.Dir, "world-$SLURMD_NODENAME")
	cuda := world + "/fakecuda"
	if s.track != cluster.LinuxProc {
		cuda = s.exit("cuda")
	}
	return strings.NewReplacer("{cuda}", cuda, "{job's cuda}", world+"/fakecuda", "{world}", world).Replace(text)
}

// submits hands in a batch job of the user and does not wait.
func (s *story) submits(user, script string, args ...string) cluster.JobID {
	return must.Have(s.on.Submit(user, s.script(script), args...))(s.t)
}

// runs hands in a batch job and waits for its end, epilogs included.
func (s *story) runs(user, script string, args ...string) cluster.JobID {
	id := s.submits(user, script, args...)
	s.ends(id)
	return id
}

// runsAfter is runs for a job that begins when the user's sbatch has ended: other nodes have none of the user's processes.
func (s *story) runsAfter(user, script string, args ...string) cluster.JobID {
	id := s.submits(user, script, append(args, "--hold")...)
	must.Do(s.t, s.on.Scontrol("release", string(id)))
	s.ends(id)
	return id
}

// ends waits until a job, or every task of an array, has ended in whatever way.
func (s *story) ends(id cluster.JobID) {
	must.Have(s.on.Wait(id, patience))(s.t)
}

// starts hands in a batch job and waits until its script has written "ready".
func (s *story) starts(user, script string, args ...string) cluster.JobID {
	id := s.submits(user, script, args...)
	s.isReady(id)
	return id
}

// isReady waits until a job's script has written "ready".
func (s *story) isReady(id cluster.JobID) {
	s.until("job "+string(id)+" is ready", func() bool {
		text, err := s.on.Output(id)
		return err == nil && strings.Contains(text, "ready")
	})
}

func (s *story) isRunning(id cluster.JobID) {
	must.Have(s.on.Wait(id, patience, "RUNNING"))(s.t)
}

func (s *story) cancels(id cluster.JobID) {
	must.Do(s.t, s.on.Cancel(id))
	s.ends(id)
}

// touches makes a file that a job of the user waits for.
func (s *story) touches(user, name string) {
	path := filepath.Join(s.home(user), name)
	must.Do(s.t, os.WriteFile(path, nil, 0o644))
	s.t.Cleanup(func() { os.Remove(path) })
}

// until asks again and again; what was waited for stands in the failure.
func (s *story) until(what string, done func() bool) {
	for deadline := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// attends is the user's srun or salloc with these lines typed in; it returns the job, which has to say its id, and what the
// terminal shows.
func (s *story) attends(user, typed, program string, args ...string) (cluster.JobID, string) {
	for i := range args {
		args[i] = s.script(args[i])
	}
	cmd := must.Have(s.on.Command(user, program, args...))(s.t)
	cmd.Stdin = strings.NewReader(s.script(typed))
	out, err := cmd.CombinedOutput()
	m := regexp.MustCompile(`(?m)^job (\d+)$`).FindSubmatch(out)
	if err != nil || m == nil {
		s.t.Fatalf("%s: %v; which job was it?\n%s", program, err, out)
	}
	id := cluster.JobID(m[1])
	s.ends(id)
	return id, string(out)
}

// logsIn is a user who starts a CUDA program past Slurm; with --orphan it goes on.
func (s *story) logsIn(user, node, args string) {
	cmd := must.Have(s.on.Command(user, s.on.World(node).FakeCUDA(), strings.Fields(args)...))(s.t)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("fakecuda %s: %v\n%s", args, err, out)
	}
}

// pid is the process that a job's CUDA program said is ready, the latest of them.
func (s *story) pid(id cluster.JobID) int {
	text := s.outputOf(id)
	ready := regexp.MustCompile(`(?m)^ready pid=(\d+)`).FindAllStringSubmatch(text, -1)
	if ready == nil {
		s.t.Fatalf("job %s has no CUDA program:\n%s", id, text)
	}
	pid, _ := strconv.Atoi(ready[len(ready)-1][1])
	return pid
}

// adminKills ends a leftover and waits until its memory is back.
func (s *story) adminKills(pid int, node string) {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.t.Fatalf("kill %d: %v", pid, err)
	}
	s.cardsAreFree(node)
}

// cardsAreFree waits until nobody holds memory on a node's cards.
func (s *story) cardsAreFree(node string) {
	s.until("the GPUs of "+node+" are free", func() bool { return len(must.Have(s.on.World(node).Holdings())(s.t)) == 0 })
}

func (s *story) adminResumes(node string) {
	must.Do(s.t, s.on.Resume(node))
}

// adminConfigures gives a node another configuration.
func (s *story) adminConfigures(node, mode, sections string) {
	must.Do(s.t, s.on.WriteConfig(node, mode, timed(sections)))
}

// driverSays changes how the driver of the first node behaves; see fakegpu's World.Set.
func (s *story) driverSays(key, value string) {
	must.Do(s.t, s.on.World(s.nodes[0]).Set(key, value))
}

// home is the user's folder, where jobs run and their output lies.
func (s *story) home(user string) string {
	return must.Have(s.on.Home(user))(s.t)
}
