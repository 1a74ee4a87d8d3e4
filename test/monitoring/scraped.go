package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"bookend/test/fakegpu"
)

// node is one node with two fake GPUs and no Slurm.
type node struct {
	*bench
	world    *fakegpu.World
	config   string
	textfile string
}

func (b *bench) node() (*node, error) {
	w, err := fakegpu.New(filepath.Join(b.dir, "world"), fakegpu.GPUs(2))
	if err != nil {
		return nil, err
	}
	numbers, err := w.Slurm(filepath.Join(b.dir, "slurm"), "n1")
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(b.dir, "textfiles")
	n := &node{b, w, filepath.Join(b.dir, "bookend.yaml"), filepath.Join(folder, "bookend.prom")}
	text := fmt.Sprintf(`version: 1
backend: %[1]s/libexec/bookend-gpu
paths: {run: %[1]s/run, var: %[1]s/var, log: %[1]s/log, sys: %[2]s, dev: %[3]s}
nvidia: {nvml_library: %[4]s, cuda_library: %[5]s, driver_proc: %[6]s}
metrics: {textfile: %[7]s}
slurm: {shards: no, %[8]s}
# A busy machine's disk, which is not what is tried here, may take longer than shipped.
deadlines: {prolog: {total: 25s, outputs: 15s}, epilog: {total: 40s, outputs: 15s}, health_check: {outputs: 15s}}
settle: {epilog: {max: 3s, flat: 500ms}}
`, b.dir, w.Sys(), w.Dev(), w.NVML(), w.CUDA(), w.DriverProc(), n.textfile, numbers)
	return n, errors.Join(os.Mkdir(folder, 0o755), os.WriteFile(n.config, []byte(text), 0o644), w.StartKeeper())
}

// hook runs a program as slurmd does for a job that has GPU 0 alone.
func (n *node) hook(program, context string, job int) error {
	cmd := exec.Command(filepath.Join(n.programs, program))
	cmd.Env = []string{"BOOKEND_CONFIG=" + n.config, "SLURMD_NODENAME=n1"}
	if context != "" {
		cmd.Env = append(cmd.Env, "SLURM_SCRIPT_CONTEXT="+context, "SLURM_JOB_ID="+strconv.Itoa(job), "SLURM_JOB_UID=65534", "SLURM_JOB_GID=65534",
			"SLURM_JOB_USER=nobody", "SLURM_JOB_PARTITION=main", "SLURM_JOB_NODELIST=n1", "SLURM_JOB_GPUS=0", fmt.Sprintf("SLURM_JOB_START_TIME=%d", 1_700_000_000+job))
	}
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		return fmt.Errorf("%s: %v: %s", program, err, out)
	}
	return nil
}

// jobs is a clean job, then one that leaves a process on its card, then a health check. In observe mode nothing drains.
func (n *node) jobs() error {
	if err := errors.Join(n.hook("bookend-prolog", "prolog_slurmd", 7), n.hook("bookend-epilog", "epilog_slurmd", 7),
		n.hook("bookend-prolog", "prolog_slurmd", 8)); err != nil {
		return err
	}
	nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
	left, err := n.world.StartAs(nobody, []string{"CUDA_VISIBLE_DEVICES=0"}, "alloc", "--mib", "2000")
	if err != nil {
		return err
	}
	err = errors.Join(n.hook("bookend-epilog", "epilog_slurmd", 8), n.hook("bookend-healthcheck", "", 0))
	return errors.Join(err, left.Kill())
}

// scraped is the way of a figure from a hook to an answer of Prometheus.
func (b *bench) scraped() (err error) {
	n, err := b.node()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.world.Close()) }()
	if err := n.jobs(); err != nil {
		return err
	}
	exporter, err := b.exporter(filepath.Dir(n.textfile))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, exporter.stop()) }()
	prometheus, err := b.prometheus(filepath.Join(b.dir, "scraped"), strings.TrimPrefix(exporter.url, "http://"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, prometheus.stop()) }()
	return errors.Join(n.wellFormed(), n.sameFigures(prometheus), known(prometheus), n.oneMeaning(prometheus), n.refused(exporter, prometheus), n.whole(exporter))
}

// wellFormed asks promtool, which knows the rules for names and help as well as the format, and says nothing where all is well.
func (n *node) wellFormed() error {
	file, err := os.Open(n.textfile)
	if err != nil {
		return err
	}
	defer file.Close()
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = file
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		return fmt.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	return nil
}

var line = regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? ([0-9.]+)$`)

// sameFigures compares every line of the file with what Prometheus has scraped.
func (n *node) sameFigures(prometheus *daemon) error {
	data, err := os.ReadFile(n.textfile)
	if err != nil {
		return err
	}
	lines := 0
	for text := range strings.Lines(string(data)) {
		m := line.FindStringSubmatch(strings.TrimSpace(text))
		if m == nil {
			continue
		}
		lines++
		want, _ := strconv.ParseFloat(m[3], 64)
		err := until("Prometheus has "+text, func() error {
			got, err := prometheus.query(fmt.Sprintf("%s{%s}", m[1], m[2]), time.Now())
			if err == nil && (len(got) != 1 || got[0].last() != want) {
				err = fmt.Errorf("prometheus has %v", got)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if lines < 100 {
		return fmt.Errorf("only %d lines in the file:\n%s", lines, data)
	}
	return nil
}

// known asks what the two jobs must have left in the figures.
func known(prometheus *daemon) error {
	var errs []error
	for expr, want := range map[string][2]float64{
		`sum(bookend_hook_runs_total{hook="epilog"})`:                            {2, 2},
		`bookend_hook_runs_total{hook="prolog",action="ignore"}`:                 {2, 2},
		`bookend_findings_total{hook="epilog",code="BKD-ORPHAN"}`:                {1, 1},
		`bookend_gpu_left_by_jobs_bytes_total{gpu="0"}`:                          {2000 << 20, 3000 << 20},
		`bookend_gpu_leaked_bytes{gpu="0"}`:                                      {2000 << 20, 3000 << 20},
		`bookend_gpu_leaked_bytes{gpu="1"}`:                                      {0, 0},
		`bookend_settle_seconds_count{hook="prolog"}`:                            {2, 2},
		`bookend_hook_duration_seconds_count{hook="epilog"}`:                     {2, 2},
		`bookend_hook_duration_seconds_bucket{hook="prolog",le="+Inf"}`:          {2, 2},
		`bookend_probe_tests_total{result="ok"}`:                                 {1, 1},
		`bookend_gpu_probe_gap_bytes{gpu="0"}`:                                   {0, 64 << 20},
		`bookend_last_run_own_errors{hook="health_check"}`:                       {0, 0},
		`bookend_mode_info{mode="observe"}`:                                      {1, 1},
		`sum(bookend_own_errors_total)`:                                          {0, 0},
		`time() - bookend_last_run_timestamp_seconds{hook="health_check"} < 600`: {0, 600},
		`cluster:bookend_nodes:count{cluster="alpha"}`:                           {1, 1},
	} {
		errs = append(errs, until(expr, func() error {
			got, err := prometheus.query(expr, time.Now())
			if err == nil && (len(got) != 1 || got[0].last() < want[0] || got[0].last() > want[1]) {
				err = fmt.Errorf("prometheus has %v, want %v", got, want)
			}
			return err
		}))
	}
	return errors.Join(errs...)
}

// oneMeaning: each family has one help and one type, and those of the documentation.
func (n *node) oneMeaning(prometheus *daemon) error {
	type meaning struct{ Type, Help string }
	told, err := ask[map[string][]meaning](prometheus, "metadata", nil)
	if err != nil {
		return err
	}
	doc, err := os.ReadFile("docs/metrics.md")
	if err != nil {
		return err
	}
	var errs []error
	families := 0
	for name, all := range told {
		if !strings.HasPrefix(name, "bookend_") {
			continue
		}
		families++
		if len(all) != 1 || !regexp.MustCompile("(?m)^\\| `"+name+"` \\| [a-z, ]*\\| "+all[0].Type+" \\| "+regexp.QuoteMeta(all[0].Help)+" \\|$").Match(doc) {
			errs = append(errs, fmt.Errorf("%s means %q, which docs/metrics.md does not say", name, all))
		}
	}
	if families < 15 {
		errs = append(errs, fmt.Errorf("prometheus knows %d families", families))
	}
	return errors.Join(errs...)
}

// refused: a file that is not well formed is left out and said, until a hook replaces it.
func (n *node) refused(exporter, prometheus *daemon) error {
	if err := os.WriteFile(n.textfile, []byte("bookend_hook_runs_total{hook=\n"), 0o644); err != nil {
		return err
	}
	says := func(expr string, want int) error {
		return until(expr, func() error {
			got, err := prometheus.query(expr, time.Now())
			if err == nil && len(got) != want {
				err = fmt.Errorf("%d answers, want %d", len(got), want)
			}
			return err
		})
	}
	err := errors.Join(says("node_textfile_scrape_error > 0", 1), says("bookend_build_info", 0))
	if err := errors.Join(err, n.hook("bookend-prolog", "prolog_slurmd", 9)); err != nil {
		return err
	}
	return errors.Join(says("node_textfile_scrape_error == 0", 1), says("bookend_build_info", 1), says(`sum(bookend_hook_runs_total{hook="prolog"}) == 3`, 1),
		says("time() - node_textfile_mtime_seconds < 600", 1))
}

// whole: whoever reads while hooks write gets a whole file.
func (n *node) whole(exporter *daemon) error {
	done := make(chan error, 1)
	go func() {
		var errs []error
		for job := range 20 {
			errs = append(errs, n.hook("bookend-prolog", "prolog_slurmd", 100+job))
		}
		done <- errors.Join(errs...)
	}()
	reads := 0
	for {
		select {
		case err := <-done:
			if reads < 20 {
				err = errors.Join(err, fmt.Errorf("only %d reads while hooks wrote", reads))
			}
			return err
		default:
			body, err := exporter.get("/metrics")
			text := string(body)
			if err != nil || !strings.Contains(text, "node_textfile_scrape_error 0") || !strings.Contains(text, "bookend_build_info{") || !strings.Contains(text, "bookend_settle_seconds_count") {
				return errors.Join(fmt.Errorf("read %d: not whole: %v\n%s", reads, err, text), <-done)
			}
			reads++
		}
	}
}
