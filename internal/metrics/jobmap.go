package metrics

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"bookend/internal/safefile"
)

// GPUJob is a GPU, or a part of one, that a running job has.
type GPUJob struct {
	Job, UID uint32
	UUID     string // empty if the driver has not shown it yet
	Slurm    int    // Slurm's number of the GPU; -1 if it is not certain
	Ordinal  int    // that of NVML and DCGM; -1 if it is not certain, and for a part of a GPU
}

// mapName is the form of the names of files that exporters read: 0, 0.7 for a part of a GPU, or a UUID.
var mapName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(\d+(\.\d+)?|(GPU|MIG)-[0-9a-f-]+)$`)
})

// MapJobs has the files that exporters read, in two directories or none, say which jobs have which GPU, by all that are
// running. A file of a GPU
// without a job becomes empty and stays: dcgm-exporter fails if it vanishes between being listed and being read.
func MapJobs(dcgmDir, gpustatDir string, running []GPUJob) error {
	dcgm, gpustat := map[string]string{}, map[string]string{}
	for _, on := range running {
		ordinal := strconv.Itoa(on.Ordinal)
		if on.Ordinal >= 0 { // one job a line; an empty line would be one too
			dcgm[ordinal] = strings.TrimPrefix(fmt.Sprintf("%s\n%d", dcgm[ordinal], on.Job), "\n")
		}
		for _, name := range []string{ordinal, on.UUID} {
			if _, shared := gpustat[name]; shared {
				gpustat[name] = "" // its reader knows one job a GPU
			} else if mapName().MatchString(name) {
				gpustat[name] = fmt.Sprintf("%d %d", on.Job, on.UID)
			}
		}
	}
	return errors.Join(writeMap(dcgmDir, dcgm), writeMap(gpustatDir, gpustat))
}

// writeMap replaces the files of a directory whose text has changed. Those that texts does not have become empty.
func writeMap(dir string, texts map[string]string) error {
	if dir == "" {
		return nil
	}
	_, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = safefile.MakeDir(filepath.Dir(dir), filepath.Base(dir), 0o755)
	}
	// Threat: in or below a directory that others can write to, a link could send root's files anywhere.
	if err = errors.Join(err, safefile.Trusted(dir)); err != nil {
		return fmt.Errorf("map jobs: %w", err)
	}
	sweep(dir)
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if mapName().MatchString(entry.Name()) {
			texts[entry.Name()] += ""
		}
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		// Threat: none from users, who cannot write here; a link or a directory that an admin put here is refused.
		old, unread := safefile.Read(dir, name, 64<<10)
		if errors.Is(unread, fs.ErrNotExist) || unread == nil && string(old) != texts[name] {
			unread = safefile.Replace(dir, name, []byte(texts[name]), 0o644)
		}
		err = errors.Join(err, unread)
	}
	return err
}

// jobs replaces the jobs of the last run by those that are running now, and those that hold a GPU in quarantine.
func (b *book) jobs(running, quarantined []GPUJob) {
	b.Samples = slices.DeleteFunc(b.Samples, func(s sample) bool {
		return s.Name == gpuJobInfo || s.Name == gpuQuarantined
	})
	for _, on := range quarantined {
		*b.at(gpuQuarantined, number(on.Slurm), on.UUID) = min(1, float64(on.Job))
	}
	for _, on := range running {
		if on.UUID != "" {
			*b.at(gpuJobInfo, number(on.Slurm), on.UUID, strconv.FormatUint(uint64(on.Job), 10)) = 1
		}
	}
}

// number is the label of Slurm's number of a GPU, empty if it is not certain.
func number(slurm int) string { return strings.TrimPrefix(strconv.Itoa(slurm), "-1") }
