package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"bookend/internal/child"
	"bookend/test/cluster"
	"bookend/test/gpu/runrecord"
	"bookend/test/rig"
)

const (
	// stepLimit is what a training step may take beside the recorder, by its time without: the noise of the pairs.
	stepLimit   = 1.01
	pairSpan    = 2 * time.Second
	undisturbed = 30 * time.Second
)

// recordCost is a small model's training beside the recorder, which is stopped for every other while. What the recorder
// and its backend take is measured before: the goals are 0.1 % of one core for each GPU, and 45 MiB.
func (l *lane) recordCost() (rows []benchmark, done func()) {
	if l.fake > 0 || l.python == "" {
		return nil, nothing
	}
	r := &run{lane: l, rec: &runrecord.Run{}, scene: &scene{}}
	l.configure("observe", nil)
	id := r.submit(0, r.script("exec "+l.python+" "+l.site.Program("train.py")+" 600"), "--gres=gpu:1")
	r.awaitOutput(id, "training")
	time.Sleep(2 * pairSpan) // for the recorder to know the process
	pids := recorderAndBackend(l.site.Program(""))
	before, recorder := cpuTime(pids), cpuTime(pids[:1])
	time.Sleep(undisturbed)
	share := func(d time.Duration) float64 { return 100 * d.Seconds() / undisturbed.Seconds() }
	recorders := share(cpuTime(pids[:1]) - recorder)
	what := fmt.Sprintf("PyTorch, beside the recorder at record.every: 1s, and while it was stopped, %v each in turn; "+
		"the recorder took %.3f %% of one core for one GPU, its backend %.3f %%, and both had %.1f MiB", pairSpan, recorders,
		share(cpuTime(pids)-before)-recorders, float64(resident(pids))/mib)
	l.tell("%s\n", what)
	step := func(name string, during func() (after func())) contender {
		return contender{runrecord.Timing{Name: "training step", What: name}, func() time.Duration {
			after := during()
			from := child.SystemClock().Boot()
			time.Sleep(pairSpan)
			to := child.SystemClock().Boot()
			after()
			return l.meanStep(id, from, to)
		}}
	}
	return []benchmark{{"training step", what, stepLimit, l.rounds(), []contender{
		step("beside it", func() func() { return nothing }),
		step("without", func() func() {
			signalAll(pids, syscall.SIGSTOP)
			return func() { signalAll(pids, syscall.SIGCONT) }
		})}}}, func() { try(l.site.Cancel(id)); r.finish(id) }
}

// recorderAndBackend are the processes of the one recorder of this lane.
func recorderAndBackend(dir string) (pids []int) {
	all := rig.Recorders(filepath.Clean(dir))
	if len(all) != 1 {
		panic(fmt.Errorf("%d recorders, want one", len(all)))
	}
	children := rig.Processes(func(p rig.Process) bool { return p.Parent == all[0].PID })
	if len(children) != 1 {
		panic(fmt.Errorf("the recorder has children %+v, want one", children))
	}
	return []int{all[0].PID, children[0].PID}
}

// cpuTime is what processes have run so far, to the nanosecond, all threads of theirs.
func cpuTime(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, file := range files {
			text, _ := os.ReadFile(file)
			var ran time.Duration
			if _, err := fmt.Sscan(string(text), (*int64)(&ran)); err == nil {
				sum += ran
			}
		}
	}
	return sum
}

// resident is the memory of processes that is theirs alone or in files, in bytes.
func resident(pids []int) (sum uint64) {
	for _, pid := range pids {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		sum += number(strings.TrimSuffix(field(text, "Pss"), " kB")) << 10
	}
	return sum
}

func signalAll(pids []int, s syscall.Signal) {
	for _, pid := range pids {
		try(syscall.Kill(pid, s))
	}
}

// meanStep is the mean time of the steps between two times since boot, to the microsecond.
func (l *lane) meanStep(id cluster.JobID, from, to time.Duration) time.Duration {
	sum, count := 0.0, 0.0
	for line := range strings.Lines(must(l.site.Output(id))) {
		var at, took float64
		if _, err := fmt.Sscanf(line, "step %f %f", &at, &took); err == nil && at-took > from.Seconds() && at < to.Seconds() {
			sum, count = sum+took, count+1
		}
	}
	if count == 0 {
		panic(fmt.Errorf("no step of job %s ended between %v and %v", id, from, to))
	}
	return time.Duration(sum / count * float64(time.Second))
}
