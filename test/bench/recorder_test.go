package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"bookend/test/must"
	"bookend/test/rig"
)

// BenchmarkRecorder is what the recorder and its backend take of a core for a job on so many fake GPUs with so many
// processes each, sampled ten times as often as usual. What a real driver takes comes on top.
func BenchmarkRecorder(b *testing.B) {
	for _, size := range []struct{ gpus, processes int }{{1, 0}, {2, 0}, {4, 0}, {8, 0}, {16, 0}, {1, 8}, {1, 32}} {
		b.Run(fmt.Sprintf("%dx%d", size.gpus, size.processes), func(b *testing.B) {
			dir, config, w := nodeOf(b, size.gpus, "record: {every: 100ms}\n")
			defer rig.EndRecorders(dir)
			var all []string
			for g := range size.gpus {
				all = append(all, strconv.Itoa(g))
				for range size.processes {
					p := must.Have(w.StartAs(&syscall.Credential{Uid: 65534, Gid: 65534}, nil, "alloc", "--gpu", all[g], "--mib", "16"))(b)
					defer p.End()
				}
			}
			run(b, filepath.Join(dir, hooks[0].name), hookEnv(hooks[0].context, "SLURM_JOB_GPUS="+strings.Join(all, ","),
				"BOOKEND_CONFIG="+config))
			time.Sleep(2 * time.Second) // to start
			const span = 10 * time.Second
			for b.Loop() {
				before := recorderTime(b, dir)
				time.Sleep(span)
				b.ReportMetric(100*(recorderTime(b, dir)-before).Seconds()/span.Seconds(), "%core")
			}
		})
	}
}

// recorderTime is what the one recorder and its backend have run so far.
func recorderTime(b *testing.B, dir string) (sum time.Duration) {
	all := rig.Recorders(dir)
	must.Not(b, len(all) != 1, "%d recorders", len(all))
	backends := rig.Processes(func(p rig.Process) bool { return p.Parent == all[0].PID })
	must.Not(b, len(backends) != 1, "%d backends", len(backends))
	for _, pid := range []int{all[0].PID, backends[0].PID} {
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
