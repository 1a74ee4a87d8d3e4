// Package bench times the programs as Slurm runs them: whole processes, each against a yardstick in the same
// run. Ratios are the claim; the machine's own speed is not.
package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/deploy"
	"bookend/test/build"
	"bookend/test/cluster"
	"bookend/test/fakegpu"
	"bookend/test/must"
)

// maxNoGPU is the promise for a job without GPUs: at most this many times a static Go program that does nothing.
const maxNoGPU = 1.5

func nothing(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	source := filepath.Join(dir, "nothing.go")
	must.Do(b, os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o644))
	text, err := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "nothing"),
		source).CombinedOutput()
	if err != nil {
		b.Fatalf("build nothing: %v\n%s", err, text)
	}
	return filepath.Join(dir, "nothing")
}

func built(b *testing.B, programs ...string) (dir string) {
	b.Helper()
	dir = b.TempDir()
	must.Do(b, build.Programs(dir, "", programs...))
	return dir
}

// hooks are the root hooks of a job, with the context that slurmd tells each.
var hooks = []struct{ name, context string }{{"bookend-prolog", "prolog_slurmd"}, {"bookend-epilog", "epilog_slurmd"}}

// run is one whole process; the environment is what slurmd gives a hook.
func run(b *testing.B, program string, env []string) time.Duration {
	cmd := exec.Command(program)
	cmd.Env = env
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		b.Fatalf("%s: %v", program, err)
	}
	return time.Since(begin)
}

// compare runs both in turn and reports the median of the ratios pair by pair, which drift does not move.
func compare(b *testing.B, program, yardstick string, env []string) float64 {
	var ratios, times []float64
	for b.Loop() {
		var own, other time.Duration
		for range 20 {
			own += run(b, program, env)
			other += run(b, yardstick, env)
		}
		ratios = append(ratios, float64(own)/float64(other))
		times = append(times, own.Seconds()*1000/20)
	}
	slices.Sort(ratios)
	slices.Sort(times)
	b.ReportMetric(ratios[len(ratios)/2], "x-nothing")
	b.ReportMetric(times[len(times)/2], "ms/run")
	return ratios[len(ratios)/2]
}

func hookEnv(context string, more ...string) []string {
	return append([]string{
		"SLURM_SCRIPT_CONTEXT=" + context, "SLURMD_NODENAME=n1", "SLURM_JOB_ID=7", "SLURM_JOB_UID=65534",
		"SLURM_JOB_GID=65534",
		"SLURM_JOB_USER=nobody", "SLURM_JOB_PARTITION=main", "SLURM_JOB_NODELIST=n1",
	}, more...)
}

// BenchmarkNoGPU fails when a hook costs a job without GPUs more than it may.
func BenchmarkNoGPU(b *testing.B) {
	yardstick := nothing(b)
	programs := built(b, "bookend-prolog", "bookend-epilog")
	for _, hook := range hooks {
		program := filepath.Join(programs, hook.name)
		b.Run(hook.name, func(b *testing.B) {
			if ratio := compare(b, program, yardstick, hookEnv(hook.context)); ratio > maxNoGPU {
				b.Errorf("%.2f times a program that does nothing; the promise is %.1f", ratio, maxNoGPU)
			}
		})
	}
}

// BenchmarkCleanGPU is Bookend's own share of a hook on a clean card: the fake driver answers at once.
func BenchmarkCleanGPU(b *testing.B) {
	dir := must.Have(cluster.Scratch())(b)
	b.Cleanup(func() { os.RemoveAll(dir) })
	config := cleanNode(b, dir, "")
	yardstick := nothing(b)
	for _, hook := range hooks {
		program := filepath.Join(dir, hook.name)
		b.Run(hook.name, func(b *testing.B) {
			compare(b, program, yardstick, hookEnv(hook.context, "SLURM_JOB_GPUS=0", "BOOKEND_CONFIG="+config))
		})
	}
}

// cleanNode makes a node of four clean GPUs in a folder, with the programs of its hooks, and returns its configuration.
func cleanNode(tb testing.TB, dir, extra string) (config string) {
	w := must.Have(fakegpu.New(filepath.Join(dir, "world"), fakegpu.GPUs(4)))(tb)
	tb.Cleanup(func() { must.Do(tb, w.Close()) })
	must.Do(tb, build.Programs(dir, "", "bookend-prolog", "bookend-epilog", "bookend-gpu"))
	numbers := must.Have(w.Slurm(filepath.Join(dir, "slurm"), "n1"))(tb)
	text := fmt.Sprintf("version: 1\nbackend: %s/bookend-gpu\npaths: {run: %[1]s/run, var: %[1]s/var, log: %[1]s/log, sys: "+
		"%[2]s, dev: %[3]s}\nnvidia: {nvml_library: %[4]s, cuda_library: %[5]s, driver_proc: %[6]s}\nmetrics: {textfile: "+
		"%[1]s/var/bookend.prom}\nslurm: {%[7]s}\nprobe: {at: never}\n", dir, w.Sys(), w.Dev(), w.NVML(), w.CUDA(),
		w.DriverProc(), numbers)
	config = filepath.Join(dir, "bookend.yaml")
	must.Do(tb, os.WriteFile(config, []byte(text+extra), 0o644))
	return config
}

// BenchmarkHookScript compares the script that slurm.conf names with one that execs the hook.
func BenchmarkHookScript(b *testing.B) {
	text := must.Have(deploy.Hooks.ReadFile("slurm/hooks/prolog"))(b)
	dir := b.TempDir()
	shipped := strings.Replace(string(text), "/usr/libexec/bookend/bookend-prolog",
		filepath.Join(built(b, "bookend-prolog"), "bookend-prolog"), 1)
	head, _, found := strings.Cut(shipped, "\ntrap ")
	if !found {
		b.Fatalf("the script has no trap:\n%s", text)
	}
	for _, shell := range []string{"dash", "bash"} {
		program, err := exec.LookPath(shell)
		if err != nil {
			b.Skip(err)
		}
		scripts := [2]string{filepath.Join(dir, shell+"-waits"), filepath.Join(dir, shell+"-execs")}
		for i, text := range []string{shipped, head + "\nexec \"$hook\"\n"} {
			text = strings.Replace(text, "/bin/sh", program, 1)
			must.Do(b, os.WriteFile(scripts[i], []byte(text), 0o755))
		}
		b.Run(shell, func(b *testing.B) { inPairs(b, scripts) })
	}
}

// inPairs runs two programs in turn and reports the medians of both, and of the ratios.
func inPairs(b *testing.B, programs [2]string) {
	var times [2][]float64
	var ratios []float64
	for n := 0; b.Loop(); n++ {
		var took [2]float64
		for i := range programs {
			which := (i + n) % 2
			took[which] = run(b, programs[which], hookEnv("prolog_slurmd")).Seconds() * 1000
			times[which] = append(times[which], took[which])
		}
		ratios = append(ratios, took[0]/took[1])
	}
	for _, all := range [][]float64{times[0], times[1], ratios} {
		slices.Sort(all)
	}
	b.ReportMetric(times[0][len(ratios)/2], "ms/waits")
	b.ReportMetric(times[1][len(ratios)/2], "ms/execs")
	b.ReportMetric(ratios[len(ratios)/2], "x-exec")
}
