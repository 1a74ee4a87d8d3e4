package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"bookend/test/gpu/record"
)

// everything runs each scenario once, then again, so that a run cut short has seen all of them.
func (l *lane) everything() {
	for number := 1; number <= l.runs; number++ {
		for _, c := range chains() {
			if l.wanted(c) {
				l.chain(c, number)
			}
		}
	}
	if l.named(timingsName) && l.inTime() {
		l.timings()
	}
}

func (l *lane) named(name string) bool { return len(l.only) == 0 || slices.Contains(l.only, name) }

func (l *lane) inTime() bool { return time.Since(l.began) < l.budget }

func (l *lane) wanted(c chain) bool {
	any := slices.ContainsFunc(c.steps, func(s step) bool { return l.named(s.name) })
	return any && len(l.cards) >= c.gpus && (!c.torch || l.python != "" || l.fake > 0)
}

// chain runs the steps of one chain; what the lane itself could not do breaks the step and those after it.
func (l *lane) chain(c chain, number int) {
	if !l.inTime() {
		fmt.Fprintf(l.say, "%-16s run %d: left out, the time is over\n", c.steps[0].name, number)
		return
	}
	var broken error
	scene := &scene{}
	if err := l.configure(c.mode); err != nil {
		broken = err
	}
	for _, s := range c.steps {
		rec := record.Run{Scenario: s.name, Title: s.title, Truth: s.truth, Number: number, Mode: c.mode}
		began := time.Now()
		if broken == nil {
			broken = l.step(s, &run{lane: l, rec: &rec, scene: scene})
		}
		if broken != nil {
			rec.Problem = broken.Error()
		}
		rec.Outcome, rec.Seconds = rec.Judge(), time.Since(began).Seconds()
		l.note(rec)
	}
	if err := l.reset(); err != nil {
		fmt.Fprintln(l.say, "gpu-lane: tidy up:", err)
	}
}

// step runs one step; a panic of the lane's own breaks it and no other.
func (l *lane) step(s step, r *run) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return s.do(r)
}

// note prints a run and writes all runs so far to disk.
func (l *lane) note(rec record.Run) {
	l.done = append(l.done, rec)
	fmt.Fprintf(l.say, "%-16s run %d: %s (%.1f s)\n", rec.Scenario, rec.Number, rec.Outcome, rec.Seconds)
	if rec.Problem != "" {
		fmt.Fprintln(l.say, "  "+rec.Problem)
	}
	for _, c := range rec.Checks {
		if !c.Right {
			fmt.Fprintf(l.say, "  %s: want %q, got %q\n", c.What, c.Want, c.Got)
		}
	}
	f := l.file()
	f.Runs = l.done
	if err := f.Write(l.path("accuracy")); err != nil {
		fmt.Fprintln(l.say, "gpu-lane: write record:", err)
	}
}

func (l *lane) file() record.File {
	return record.File{
		Version: record.Version, Fake: l.fake > 0, Date: l.began.UTC().Truncate(time.Second),
		Command: commandLine(os.Args), Machine: l.machine,
	}
}

// commandLine is how to do it again; where this machine kept its folders helps nobody.
func commandLine(args []string) string {
	said := make([]string, len(args))
	for i, a := range args {
		said[i] = a
		if filepath.IsAbs(a) {
			said[i] = filepath.Base(a)
		}
	}
	said[0] = filepath.Base(args[0])
	return strings.Join(said, " ")
}

// path names a record by time and machine.
func (l *lane) path(kind string) string {
	model := regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(l.machine.GPU, "-")
	if l.fake > 0 {
		kind, model = "rehearsal-"+kind, "fake"
	}
	return filepath.Join(l.out, fmt.Sprintf("%s-%s-%dx-%s.json", kind, l.began.UTC().Format("20060102-1504"), len(l.cards), model))
}

// summary counts, and reports whether all was right.
func (l *lane) summary() bool {
	count := map[record.Outcome]int{}
	for _, r := range l.done {
		count[r.Outcome]++
	}
	fmt.Fprintf(l.say, "gpu-lane: %d right, %d wrong, %d broken in %.0f s\n",
		count[record.Right], count[record.Wrong], count[record.Broken], time.Since(l.began).Seconds())
	if l.fake == 0 && l.python == "" {
		fmt.Fprintln(l.say, "gpu-lane: no PyTorch here: its scenarios were left out")
	}
	timed := l.perf != nil || !l.named(timingsName)
	return timed && count[record.Wrong]+count[record.Broken] == 0
}

// The logs of a failed run: at most 2 MiB of each file's end.
const maxLog = 2 << 20

// keepLogs packs what the daemons, hooks and jobs wrote.
func (l *lane) keepLogs() {
	if l.site == nil {
		return
	}
	f, err := os.Create(filepath.Join(l.out, "logs.tar.gz"))
	if err != nil {
		fmt.Fprintln(l.say, "gpu-lane: keep logs:", err)
		return
	}
	defer f.Close()
	zipped := gzip.NewWriter(f)
	packed := tar.NewWriter(zipped)
	for _, folder := range []string{"slurm/log", "slurm/etc", "slurm/home", "etc", "log-bookend", "run"} {
		err = errors.Join(err, packFolder(packed, l.site.Dir, folder))
	}
	if err = errors.Join(err, packed.Close(), zipped.Close()); err != nil {
		fmt.Fprintln(l.say, "gpu-lane: keep logs:", err)
	}
}

func packFolder(packed *tar.Writer, root, folder string) error {
	return filepath.WalkDir(filepath.Join(root, folder), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil // what is gone or no file is left out
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		data = data[max(0, len(data)-maxLog):]
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if err := packed.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
			return err
		}
		_, err = packed.Write(data)
		return err
	})
}
