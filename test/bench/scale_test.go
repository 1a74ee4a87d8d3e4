package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"bookend/test/build"
	"bookend/test/must"
)

// BenchmarkAtOnce begins so many starts of jobs at once, and tells how long the first and the last of them took.
func BenchmarkAtOnce(b *testing.B) {
	dir, config := cleanNode(b, "record: {every: 0s}\n")
	job := 100
	for _, n := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var fastest, slowest []float64
			for b.Loop() {
				took := make([]float64, n)
				var all sync.WaitGroup
				for i := range n {
					job++
					env := hookEnv("prolog_slurmd", fmt.Sprintf("SLURM_JOB_ID=%d", job), "SLURM_JOB_GPUS=0",
						"BOOKEND_CONFIG="+config)
					all.Go(func() { took[i] = run(b, filepath.Join(dir, "bookend-prolog"), env).Seconds() * 1000 })
				}
				all.Wait()
				fastest, slowest = append(fastest, slices.Min(took)), append(slowest, slices.Max(took))
			}
			b.ReportMetric(median(fastest), "ms/first")
			b.ReportMetric(median(slowest), "ms/last")
		})
	}
}

// BenchmarkHistory reads histories of so many runs, each the copy of one that hooks have made.
func BenchmarkHistory(b *testing.B) {
	const id = "987654321"
	dir, config := cleanNode(b, "record: {every: 0s}\n")
	must.Do(b, build.Programs(dir, "", "bookend", "bookend-healthcheck"))
	for _, h := range hooks {
		run(b, filepath.Join(dir, h.name), hookEnv(h.context, "SLURM_JOB_ID="+id, "SLURM_JOB_GPUS=0",
			"BOOKEND_CONFIG="+config))
	}
	var files []string
	for until := time.Now().Add(2 * time.Minute); len(files) == 0 && time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		files, _ = filepath.Glob(filepath.Join(dir, "var/history/n1/"+id+"*.json")) // once the disk has been written
	}
	text := must.Have(os.ReadFile(files[0]))(b)
	made := 0
	for _, n := range []int{1000, 10_000, 100_000} {
		for ; made < n; made++ {
			own := []byte(fmt.Sprint(900_000_000 + made))
			name := bytes.ReplaceAll([]byte(files[0]), []byte(id), own)
			must.Do(b, os.WriteFile(string(name), bytes.ReplaceAll(text, []byte(id), own), 0o600))
		}
		b.Run(fmt.Sprintf("%d/check", n), func(b *testing.B) {
			for b.Loop() {
				run(b, filepath.Join(dir, "bookend-healthcheck"), append(hookEnv(""), "BOOKEND_CONFIG="+config))
			}
		})
		for _, args := range [][]string{{"history"}, {"show", "900000000"}, {"report", "--html", "-"}} {
			b.Run(fmt.Sprintf("%d/%s", n, args[0]), func(b *testing.B) {
				for b.Loop() {
					cmd := exec.Command(filepath.Join(dir, "bookend"), args...)
					cmd.Env = []string{"BOOKEND_CONFIG=" + config}
					out, err := cmd.Output()
					must.Not(b, err != nil || len(out) < 100, "%v: %.200s", err, out)
				}
				b.ReportMetric(float64(len(text))/1024, "KiB/run")
			})
		}
	}
}

// BenchmarkRecords is a health check of a node that has so many records of jobs which never ended in its memory.
func BenchmarkRecords(b *testing.B) {
	const id = "987654321"
	dir, config := cleanNode(b, "record: {every: 0s}\n")
	must.Do(b, build.Programs(dir, "", "bookend-healthcheck"))
	run(b, filepath.Join(dir, hooks[0].name), hookEnv(hooks[0].context, "SLURM_JOB_ID="+id, "SLURM_JOB_GPUS=0",
		"BOOKEND_CONFIG="+config))
	files := must.Have(filepath.Glob(filepath.Join(dir, "run/state/n1", id, "*.json")))(b)
	text, made := must.Have(os.ReadFile(files[0]))(b), 0
	for _, n := range []int{100, 1000, 10_000, 100_000} {
		for ; made < n; made++ {
			own := []byte(fmt.Sprint(900_000_000 + made))
			name := string(bytes.ReplaceAll([]byte(files[0]), []byte(id), own))
			must.Do(b, errors.Join(os.MkdirAll(filepath.Dir(name), 0o700),
				os.WriteFile(name, bytes.ReplaceAll(text, []byte(id), own), 0o600)))
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				run(b, filepath.Join(dir, "bookend-healthcheck"), append(hookEnv(""), "BOOKEND_CONFIG="+config))
			}
			left := must.Have(filepath.Glob(filepath.Join(dir, "run/state/n1/9*")))(b)
			b.ReportMetric(float64(len(left)), "records-left")
		})
	}
}
