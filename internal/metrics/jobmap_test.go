package metrics

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"bookend/internal/config"
	"bookend/test/must"
)

// mapped is a host that maps jobs in both forms and in the textfile.
func mapped(t *testing.T) config.JobMap {
	dir := must.RootsDir(t)
	return config.JobMap{DCGM: filepath.Join(dir, "dcgm"), Gpustat: filepath.Join(dir, "gpustat")}
}

// files are those of a directory with their texts: "0=42 1=".
func files(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	for _, e := range must.Have(os.ReadDir(dir))(t) {
		all = append(all, e.Name()+"="+must.Read(t, filepath.Join(dir, e.Name())))
	}
	return strings.Join(all, " ")
}

func TestJobMaps(t *testing.T) {
	const a, b, part = "GPU-0a", "GPU-0b", "MIG-0c"
	f, m := host(t), mapped(t)
	for _, tt := range []struct {
		running       []GPUJob
		dcgm, gpustat string
		metric        []string
	}{
		{nil, "", "", nil},
		{[]GPUJob{{Job: 42, UID: 1000, UUID: b, Ordinal: 1}}, "1=42", "1=42 1000 GPU-0b=42 1000",
			[]string{`bookend_gpu_job_info{gpu="0",uuid="GPU-0b",jobid="42"}`}},
		{ // another form: three jobs share a GPU
			[]GPUJob{{Job: 8, UID: 2, UUID: a, Slurm: -1}, {Job: 9, UID: 1, UUID: a, Slurm: 1}, {Job: 10, UID: 1, UUID: a, Slurm: 1}},
			"0=8\n9\n10 1=", "0= 1= GPU-0a= GPU-0b=", []string{`bookend_gpu_job_info{gpu="",uuid="GPU-0a",jobid="8"}`,
				`bookend_gpu_job_info{gpu="1",uuid="GPU-0a",jobid="10"}`, `bookend_gpu_job_info{gpu="1",uuid="GPU-0a",jobid="9"}`}},
		{ // parts of a GPU have no ordinal, and what has no certain name has no file
			[]GPUJob{{Job: 7, UID: 3, UUID: part, Ordinal: -1}, {Job: 6, UID: 3, UUID: "../0", Ordinal: -1},
				{Job: 5, UID: 3, Ordinal: 2}},
			"0= 1= 2=5", "0= 1= 2=5 3 GPU-0a= GPU-0b= MIG-0c=7 3", []string{
				`bookend_gpu_job_info{gpu="0",uuid="../0",jobid="6"}`, `bookend_gpu_job_info{gpu="0",uuid="MIG-0c",jobid="7"}`}},
		{nil, "0= 1= 2=", "0= 1= 2= GPU-0a= GPU-0b= MIG-0c=", nil},
	} {
		r := at(0, Prolog)
		r.Running = tt.running
		must.Do(t, MapJobs(m.DCGM, m.Gpustat, tt.running))
		recordRuns(t, f, r)
		must.Be(t, "dcgm", files(t, m.DCGM), tt.dcgm)
		must.Be(t, "gpustat", files(t, m.Gpustat), tt.gpustat)
		var metric []string
		for series := range shown(t, f) {
			if strings.HasPrefix(series, gpuJobInfo) {
				metric = append(metric, series)
			}
		}
		slices.Sort(metric)
		must.Be(t, "metric", fmt.Sprint(metric), fmt.Sprint(tt.metric))
	}
	must.Do(t, MapJobs("", "", []GPUJob{{Job: 42}}))
}

// Files with other names are left alone, and a directory in which others can write gets none.
func TestJobMapsOfOthers(t *testing.T) {
	for name, tt := range map[string]struct {
		harm  func(dir string) error
		files string // afterwards
		fails bool
	}{
		"half written": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, ".tmp-0123456789abcdef"), nil, 0o600)
		}, "0=42", false},
		"by an earlier boot": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "3.7"), []byte("41\n40\n"), 0o644)
		}, "0=42 3.7=", false},
		"other names": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "job-0"), []byte("x"), 0o644) },
			"0=42 job-0=x", false},
		"a link":    {func(dir string) error { return os.Symlink("/etc/hostname", filepath.Join(dir, "0")) }, "", true},
		"another's": {func(dir string) error { return os.Chown(dir, 65534, 0) }, "", true},
		"open":      {func(dir string) error { return os.Chmod(dir, 0o777|os.ModeSticky) }, "", true},
		"below a user's": {func(dir string) error {
			return os.Chown(filepath.Dir(dir), 65534, 0)
		}, "", true},
		"missing": {os.Remove, "0=42", false},
	} {
		m := config.JobMap{DCGM: mapped(t).DCGM}
		must.Do(t, os.Mkdir(m.DCGM, 0o755))
		must.Do(t, tt.harm(m.DCGM))
		if err := MapJobs(m.DCGM, m.Gpustat, []GPUJob{{Job: 42}}); (err != nil) != tt.fails {
			t.Errorf("%s: %v", name, err)
		}
		if name != "a link" {
			must.Be(t, name, files(t, m.DCGM), tt.files)
		}
	}
}

// scrape reads a directory as dcgm-exporter does: names of this form, a job a line; a file that is listed and cannot be
// opened fails the scrape.
func scrape(dir string) (jobs map[string][]string, err error) {
	form := regexp.MustCompile(`^\d+(\.\d+)?$`)
	entries, err := os.ReadDir(dir)
	jobs = map[string][]string{}
	for _, e := range entries {
		if !form.MatchString(e.Name()) {
			continue
		}
		file, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		jobs[e.Name()] = nil
		for lines := bufio.NewScanner(file); lines.Scan(); {
			jobs[e.Name()] = append(jobs[e.Name()], lines.Text())
		}
		file.Close()
	}
	return jobs, err
}

// jobsOf returns the jobs of a GPU in a round of a test: none, one or two.
func jobsOf(round int64, gpu int) (running []GPUJob) {
	for n := range (round + int64(gpu)) % 3 {
		running = append(running, GPUJob{Job: uint32(round*100 + int64(gpu)*10 + n), Ordinal: gpu})
	}
	return running
}

// While jobs come and go, dcgm-exporter finds each file at every scrape, and in it the jobs that the GPU had then.
func TestScrapesWhileJobsChange(t *testing.T) {
	const gpus, scrapes = 4, 10_000
	m := config.JobMap{DCGM: mapped(t).DCGM}
	var begun, written atomic.Int64
	write := func() (done bool) {
		round := begun.Add(1)
		var running []GPUJob
		for gpu := range gpus {
			running = append(running, jobsOf(round, gpu)...)
		}
		if err := MapJobs(m.DCGM, m.Gpustat, running); err != nil {
			t.Error(err)
			return false
		}
		written.Store(round)
		return true
	}
	for range 2 { // then each GPU has had a job
		must.Not(t, !write(), "the first jobs")
	}
	var over atomic.Bool
	var writer sync.WaitGroup
	writer.Go(func() {
		for !over.Load() && write() {
		}
	})
	defer func() {
		over.Store(true)
		writer.Wait()
	}()
	for range scrapes {
		from := written.Load()
		jobs, err := scrape(m.DCGM)
		must.Not(t, err != nil || len(jobs) != gpus, "a scrape failed: %v, %v", jobs, err)
		for gpu := range gpus {
			had := false
			for round := from; round <= begun.Load() && !had; round++ {
				var want []string
				for _, on := range jobsOf(round, gpu) {
					want = append(want, fmt.Sprint(on.Job))
				}
				had = slices.Equal(jobs[strconv.Itoa(gpu)], want)
			}
			must.Not(t, !had, "GPU %d has %q, which it had in no round from %d on", gpu, jobs[strconv.Itoa(gpu)], from)
		}
	}
	must.Not(t, written.Load() < 100, "the jobs changed %d times only", written.Load())
}
