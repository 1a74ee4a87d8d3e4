package joblog

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The files that a process writes to are told from those that it reads, and from what is no file.
func TestWritten(t *testing.T) {
	dir, proc := t.TempDir(), t.TempDir()
	must(t, os.MkdirAll(filepath.Join(proc, "7/fd"), 0o700))
	must(t, os.MkdirAll(filepath.Join(proc, "7/fdinfo"), 0o700))
	for fd, tt := range map[int]struct{ to, flags string }{
		0: {"/dev/null", "0100000"}, 1: {filepath.Join(dir, "job.out"), "0102001"}, 2: {filepath.Join(dir, "job.out"),
			"0102001"},
		3: {filepath.Join(dir, "slurm.conf"), "0100000"}, 4: {filepath.Join(dir, "step.out"),
			"0100002"}, 5: {"pipe:[7]", "01"}, 6: {"/dev/null", "0100001"},
		7: {filepath.Join(dir, "gone.out"), "0100001"}, 8: {filepath.Join(dir, "odd.out"), "what"},
	} {
		must(t, os.Symlink(tt.to, filepath.Join(proc, "7/fd", fmt.Sprint(fd))))
		must(t, os.WriteFile(filepath.Join(proc, "7/fdinfo", fmt.Sprint(fd)),
			[]byte("pos:\t0\nflags:\t"+tt.flags+"\nmnt_id:\t31\n"), 0o600))
	}
	must(t, os.Symlink(filepath.Join(dir, "closed.out"), filepath.Join(proc, "7/fd/9"))) // meanwhile
	must(t, os.Mkdir(filepath.Join(proc, "9"), 0o700))
	must(t, os.WriteFile(filepath.Join(proc, "9/fd"), nil, 0o600))
	for _, name := range []string{"job.out", "slurm.conf", "step.out", "odd.out", "closed.out"} {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	found, err := Written(proc, 7)
	if err != nil || len(found) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	for _, f := range found {
		if name := filepath.Base(f.Path); name != "job.out" && name != "step.out" || f.Ino == 0 {
			t.Errorf("%+v", f)
		}
	}
	for _, pid := range []int{8, 9} {
		if found, err := Written(proc, pid); err == nil {
			t.Errorf("process %d, which cannot be looked into, writes to %+v", pid, found)
		}
	}
}

// Of a step with one file a task most cannot be told, nor where it goes to srun's own pipe, whatever else srun has open.
func TestApart(t *testing.T) {
	log := filepath.Join(t.TempDir(), "train-7.log")
	must(t, os.WriteFile(log, nil, 0o600))
	for command, tt := range map[string]struct {
		output, errors string
		want           bool
	}{
		"srun -o out.%2t train":                              {log, log, true},
		"srun -o out.%j train":                               {log, log, false},
		"srun " + strings.Repeat("x ", maxCommand) + "-o %t": {log, log, false},

		"srun train | tee":                      {"pipe:[7]", log, true},
		"srun train 2>&1 | tee":                 {"pipe:[7]", "pipe:[7]", true},
		"srun train > train-7.log 2> /dev/null": {log, "/dev/null", true},
	} {
		proc := t.TempDir()
		must(t, os.MkdirAll(filepath.Join(proc, "7/fd"), 0o700))
		must(t, os.WriteFile(filepath.Join(proc, "7/cmdline"),
			[]byte(strings.ReplaceAll(command, " ", "\x00")+"\x00"), 0o600))
		must(t, os.Symlink(tt.output, filepath.Join(proc, "7/fd/1")))
		must(t, os.Symlink(tt.errors, filepath.Join(proc, "7/fd/2")))
		if got := Apart(proc, 7); got != tt.want {
			t.Errorf("%.60s: %v", command, got)
		}
	}
	if Apart(t.TempDir(), 7) {
		t.Error("a process that has ended writes its output apart")
	}
}
