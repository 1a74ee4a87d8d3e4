// Package bench times the programs as Slurm runs them: whole processes, each against a yardstick in the same
// run. Ratios are the claim; the machine's own speed is not.
package bench

import (
	"errors"
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

// inTurn times two programs by turns, the first of each pair changing, and reports the median times of both and the
// median of the pairs' ratios, which drift does not move.
func inTurn(b *testing.B, names [2]string, once func(which int) time.Duration) (ratio float64) {
	var times [2][]float64
	var ratios []float64
	for n := 0; b.Loop(); n++ {
		for i := range times {
			which := (i + n) % 2
			times[which] = append(times[which], once(which).Seconds()*1000)
		}
		ratios = append(ratios, times[0][n]/times[1][n])
	}
	ratio = median(ratios)
	b.ReportMetric(median(times[0]), "ms/"+names[0])
	b.ReportMetric(median(times[1]), "ms/"+names[1])
	b.ReportMetric(ratio, "x-"+names[1])
	return ratio
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// twenty is the mean time of so many runs.
func twenty(once func() time.Duration) (mean time.Duration) {
	for range 20 {
		mean += once() / 20
	}
	return mean
}

// byIdle compares a hook with a static Go program that does nothing.
func byIdle(b *testing.B, dir, hook string, env []string) (ratio float64) {
	both := [2]string{filepath.Join(dir, hook), filepath.Join(built(b, idle), "idle")}
	return inTurn(b, [2]string{"run", "nothing"}, func(which int) time.Duration {
		return twenty(func() time.Duration { return run(b, both[which], env) })
	})
}

const idle = "bookend/test/gpu/scenarios/idle"

func hookEnv(context string, more ...string) []string {
	return append([]string{
		"SLURM_SCRIPT_CONTEXT=" + context, "SLURMD_NODENAME=n1", "SLURM_JOB_ID=7", "SLURM_JOB_UID=65534",
		"SLURM_JOB_GID=65534",
		"SLURM_JOB_USER=nobody", "SLURM_JOB_PARTITION=main", "SLURM_JOB_NODELIST=n1",
	}, more...)
}

// BenchmarkNoGPU fails when a hook costs a job without GPUs more than it may.
func BenchmarkNoGPU(b *testing.B) {
	programs := built(b, "bookend-prolog", "bookend-epilog")
	for _, hook := range hooks {
		b.Run(hook.name, func(b *testing.B) {
			ratio := byIdle(b, programs, hook.name, hookEnv(hook.context))
			must.Not(b, ratio > maxNoGPU, "%.2f times a program that does nothing; the promise is %.1f", ratio, maxNoGPU)
		})
	}
}

// BenchmarkCleanGPU is Bookend's own share of a hook on a clean card: the fake driver answers at once.
func BenchmarkCleanGPU(b *testing.B) {
	dir, config := cleanNode(b, "")
	for _, hook := range hooks {
		b.Run(hook.name, func(b *testing.B) {
			byIdle(b, dir, hook.name, hookEnv(hook.context, "SLURM_JOB_GPUS=0", "BOOKEND_CONFIG="+config))
		})
	}
}

// cleanNode makes a node of four clean GPUs in a directory, with the programs of its hooks, and its configuration.
func cleanNode(tb testing.TB, extra string) (dir, config string) {
	dir, config, _ = nodeOf(tb, 4, extra)
	return dir, config
}

func nodeOf(tb testing.TB, gpus int, extra string) (dir, config string, w *fakegpu.World) {
	dir = must.Have(cluster.Scratch())(tb)
	tb.Cleanup(func() { os.RemoveAll(dir) })
	w = must.Have(fakegpu.New(filepath.Join(dir, "world"), fakegpu.GPUs(gpus)))(tb)
	tb.Cleanup(func() { must.Do(tb, w.Close()) })
	must.Do(tb, build.Programs(dir, "", "bookend-prolog", "bookend-epilog", "bookend-gpu"))
	numbers := must.Have(w.Slurm(filepath.Join(dir, "slurm"), "n1"))(tb)
	text := fmt.Sprintf("version: 1\nbackend: %s/bookend-gpu\npaths: {run: %[1]s/run, var: %[1]s/var, log: %[1]s/log, sys: "+
		"%[2]s, dev: %[3]s}\nnvidia: {nvml_library: %[4]s, cuda_library: %[5]s, driver_proc: %[6]s}\nmetrics: {textfile: "+
		"%[1]s/var/bookend.prom}\nslurm: {%[7]s}\nprobe: {at: never}\n", dir, w.Sys(), w.Dev(), w.NVML(), w.CUDA(),
		w.DriverProc(), numbers)
	config = filepath.Join(dir, "bookend.yaml")
	must.Do(tb, os.WriteFile(config, []byte(text+extra), 0o644))
	return dir, config, w
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
		b.Run(shell, func(b *testing.B) {
			inTurn(b, [2]string{"waits", "exec"}, func(which int) time.Duration {
				return run(b, scripts[which], hookEnv("prolog_slurmd"))
			})
		})
	}
}

// BenchmarkSpool is what a spool on a local disk adds to an epilog: next to a job's log, whose child writes both, and alone.
func BenchmarkSpool(b *testing.B) {
	const uid = 65533
	dir, plain := cleanNode(b, "record: {every: 0s}\n")
	home := filepath.Join(dir, "home")
	out, spool := filepath.Join(home, "job.out"), filepath.Join(home, "ann")
	must.Do(b, errors.Join(os.MkdirAll(spool, 0o700), os.WriteFile(out, nil, 0o644), os.Chown(home, uid, uid),
		os.Chown(out, uid, uid), os.Chown(spool, uid, uid)))
	both := [2]string{filepath.Join(dir, "spooled.yaml"), plain}
	must.Do(b, os.WriteFile(both[0], []byte(must.Read(b, plain)+"spool: "+home+"/%u\n"), 0o644))
	for name, with := range map[string][]string{"log": {"SLURM_JOB_STDOUT=" + out}, "alone": {"SLURM_JOB_STDOUT="}} {
		b.Run(name, func(b *testing.B) {
			inTurn(b, [2]string{"spooled", "plain"}, func(which int) time.Duration {
				with := append(with, "SLURM_JOB_GPUS=0", "BOOKEND_CONFIG="+both[which], fmt.Sprintf("SLURM_JOB_UID=%d", uid),
					fmt.Sprintf("SLURM_JOB_GID=%d", uid), "SLURM_JOB_USER=ann")
				run(b, filepath.Join(dir, hooks[0].name), hookEnv(hooks[0].context, with...))
				return run(b, filepath.Join(dir, hooks[1].name), hookEnv(hooks[1].context, with...))
			})
		})
	}
	files := must.Have(os.ReadDir(spool))(b)
	must.Not(b, len(files) == 0, "nothing was written to the spool")
}

// BenchmarkSharedMemory is what 1,000 files that a user keeps in shared memory add to both hooks of a job that leaves none.
// The fake driver answers at once: on a real node they are listed while it is awaited.
func BenchmarkSharedMemory(b *testing.B) {
	const uid = 65533
	var dirs, configs [2]string
	for i := range dirs {
		dirs[i], configs[i] = cleanNode(b, "record: {every: 0s}\n")
		files := must.Have(os.MkdirTemp("/dev/shm", "bookend-bench"))(b)
		b.Cleanup(func() { os.RemoveAll(files) })
		must.Do(b, os.Symlink(files, filepath.Join(dirs[i], "world/dev/shm")))
		for n := range 1000 * (1 - i) {
			name := filepath.Join(files, fmt.Sprint(n))
			must.Do(b, errors.Join(os.WriteFile(name, nil, 0o600), os.Chown(name, uid, uid)))
		}
	}
	for at, hook := range hooks {
		b.Run(hook.name, func(b *testing.B) {
			inTurn(b, [2]string{"thousand", "none"}, func(which int) (took time.Duration) {
				for i, h := range hooks {
					spent := run(b, filepath.Join(dirs[which], h.name), hookEnv(h.context, "SLURM_JOB_GPUS=0",
						"BOOKEND_CONFIG="+configs[which], fmt.Sprint("SLURM_JOB_UID=", uid), fmt.Sprint("SLURM_JOB_GID=", uid)))
					if i == at {
						took = spent
					}
				}
				return took
			})
		})
	}
}
