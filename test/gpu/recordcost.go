package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"bookend/internal/child"
	"bookend/test/gpu/record"
	"bookend/test/rig"
)

const (
	recordCostName = "record-cost"
	// stepLimit is what a training step may take beside the recorder, by its time without: the noise of the pairs.
	stepLimit = 1.01
	// recorderCPU and recorderMemory are what the recorder and its backend may cost: the project's own goals.
	recorderCPU    = 0.001 // of one core, for each GPU
	recorderMemory = 45 << 20
	pairSpan       = 2 * time.Second
	undisturbed    = 30 * time.Second
)

// recordCost trains a small model beside the recorder, which is stopped for every other while, and measures what the
// recorder and its backend take meanwhile.
func (l *lane) recordCost(t *record.Timings) {
	if l.fake > 0 || l.python == "" {
		return
	}
	l.awaitIdle()
	r := &run{lane: l, rec: &record.Run{}, scene: &scene{}}
	l.configure("observe", nil)
	span := (2*rounds+8)*pairSpan + undisturbed
	id := r.submit(0, r.script(fmt.Sprintf("exec %s %s %.0f", l.python, l.site.Program("train.py"), span.Seconds())),
		"--gres=gpu:1")
	r.awaitOutput(id, "training")
	time.Sleep(2 * pairSpan) // for the recorder to know the process
	pids := recorderAndBackend(l.site.Program(""))
	boot, before, recorder := child.SystemClock().Boot, cpuTime(pids), cpuTime(pids[:1])
	time.Sleep(undisturbed)
	share := func(d time.Duration) float64 { return 100 * d.Seconds() / undisturbed.Seconds() }
	cpu, recorders, memory := share(cpuTime(pids)-before), share(cpuTime(pids[:1])-recorder), resident(pids)
	var with, without [][2]time.Duration
	for range rounds {
		from := boot()
		time.Sleep(pairSpan)
		with = append(with, [2]time.Duration{from, boot()})
		signalAll(pids, syscall.SIGSTOP)
		from = boot()
		time.Sleep(pairSpan)
		without = append(without, [2]time.Duration{from, boot()})
		signalAll(pids, syscall.SIGCONT)
	}
	r.awaitOutput(id, "trained")
	text := must(l.site.Output(id))
	p := record.Pair{Name: "training step", Limit: stepLimit, What: fmt.Sprintf(
		"PyTorch, beside the recorder at record.every: 1s, and while it was stopped, %v each in turn; the recorder took "+
			"%.3f %% of one core for one GPU, its backend %.3f %%, and both had %.1f MiB",
		pairSpan, recorders, cpu-recorders, float64(memory)/(1<<20))}
	p.Ours, p.Bare = stepsIn(text, with, "beside it"), stepsIn(text, without, "without")
	t.Pairs = append(t.Pairs, p)
	l.tell("%-34s %8.3f ms, without %.3f ms: %.4f times; recorder %.4f and backend %.4f %% CPU (goal %.2f), "+
		"%.1f MiB (goal %d)\n", p.Name,
		p.Ours.Median(), p.Bare.Median(), p.Ratio(), recorders, cpu-recorders, 100*recorderCPU, float64(memory)/(1<<20), recorderMemory>>20)
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
			var ran int64
			if _, err := fmt.Sscan(string(text), &ran); err == nil {
				sum += time.Duration(ran)
			}
		}
	}
	return sum
}

// resident is the memory of processes that is theirs alone or in files, in bytes.
func resident(pids []int) (sum uint64) {
	for _, pid := range pids {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		for line := range strings.Lines(string(text)) {
			var kib uint64
			if _, err := fmt.Sscanf(line, "Pss: %d kB", &kib); err == nil {
				sum += kib << 10
			}
		}
	}
	return sum
}

func signalAll(pids []int, s syscall.Signal) {
	for _, pid := range pids {
		try(syscall.Kill(pid, s))
	}
}

// stepsIn are the mean times of the steps that ended in each span.
func stepsIn(text string, spans [][2]time.Duration, what string) record.Timing {
	t := timing("training step", what)
	sums, counts := make([]float64, len(spans)), make([]float64, len(spans))
	for line := range strings.Lines(text) {
		var at, took float64
		if _, err := fmt.Sscanf(line, "step %f %f", &at, &took); err != nil {
			continue
		}
		for i, s := range spans {
			if at-took > s[0].Seconds() && at < s[1].Seconds() {
				sums[i], counts[i] = sums[i]+1000*took, counts[i]+1
			}
		}
	}
	for i := range spans {
		if counts[i] > 0 {
			t.Millis = append(t.Millis, sums[i]/counts[i])
		}
	}
	return t
}
