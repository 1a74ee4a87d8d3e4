package main

import (
	"errors"
	"fmt"
	"strings"

	"bookend/test/mutant"
	"bookend/test/rig"
)

// planting is a mistake and the part of the run that must notice it.
type planting struct {
	mutant.Mutant
	only string // the faults to be tried, by a text in their names
}

// safely is how a file is replaced; inPlace and renameFirst are how it must not be.
const (
	writeFile = "internal/safefile/write.go"
	safely    = `
	temp, err := writeTemp(dirfd, data, a)
	if err != nil {
		return err
	}
	if err := retry(func() error { return unix.Renameat(dirfd, temp, dirfd, name) }); err != nil {
		_ = unix.Unlinkat(dirfd, temp, 0)
		return fmt.Errorf("rename: %w", err)
	}
`
	inPlace = `
	fd, err := openAt(dirfd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	if err := errors.Join(fill(f, data, a), f.Close()); err != nil {
		return err
	}
`
	renameFirst = `
	temp, err := writeTemp(dirfd, nil, a)
	if err != nil {
		return err
	}
	fd, err := openAt(dirfd, temp, unix.O_WRONLY, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), temp)
	defer f.Close()
	if err := unix.Renameat(dirfd, temp, dirfd, name); err != nil {
		return err
	}
	if err := fill(f, data, a); err != nil {
		return err
	}
`
)

// writing are the faults in the writing of a run's record.
const writing = "start: hook write run/state"

// together stands for two ends at once, among what planting.only names.
const together = "two ends at once"

// plant is a planting in one place of a file.
func plant(only, name, file, old, change string) planting {
	return planting{mutant.Mutant{Name: name, File: file, Old: old, New: change}, only}
}

// plantings are the mistakes that must be noticed.
var plantings = []planting{
	plant(writing, "written in place", writeFile, safely, inPlace),
	plant(writing, "renamed before it is written", writeFile, safely, renameFirst),
	plant("no fault", "a name on disk without a sync", writeFile,
		"return retry(func() error { return unix.Fsync(dirfd) })", "return nil"),
	plant(writing, "half a file left", writeFile, "\n\tif err != nil {\n\t\t_ = unix.Unlinkat(dirfd, temp, 0)\n",
		"\n\tif err != nil {\n"),
	plant("no fault", "on disk without a sync", writeFile, "\n\tif a.durable {\n\t\treturn f.Sync()\n\t}\n", "\n"),
	plant("no fault", "another job's record taken", "internal/state/runs.go",
		"case r.Job.Node != node || r.Job.ID != id || r.Key != key:", "case r.Job.Node != node:"),
	plant("no fault", "damage removed, not set aside", "internal/state/file.go",
		"_ = os.Rename(filepath.Join(s.dir, path), to)", "_ = os.Remove(filepath.Join(s.dir, path))"),
	plant(together, "lock shared by two ends", "internal/state/state.go",
		"safefile.Lock(filepath.Join(s.dir, name), lockWait, true)",
		"safefile.Lock(filepath.Join(s.dir, name), lockWait, false)"),
	plant("end: hook renameat run/state", "an end that was not kept, and not said", "internal/stage/epilog.go",
		"r.Try(r.Store.Close(run, r.end()))", "_ = r.Store.Close(run, r.end())"),
	plant(writing, "what was interrupted never swept", "internal/state/archive.go", "s.sweep(now), ", ""),
	plant("end with a leak: disk renameat var", "what was interrupted on disk never swept", "internal/state/archive.go",
		"stale := strings.HasPrefix(f.Name(), safefile.TempPrefix)", "stale := false"),
}

// mutants plants each, and prints what noticed it.
func (b bench) mutants(o order) error {
	survived := 0
	for _, m := range plantings {
		if !strings.Contains(m.Name, o.only) {
			continue
		}
		by := b.notice(m, o)
		if by == "" {
			survived++
			by = "NOTHING"
		}
		fmt.Printf("%-44s %.110s\n", m.Name, by)
	}
	if survived > 0 {
		return rig.ErrWrong
	}
	return nil
}

// notice says what notices a planted mistake, "" for nothing.
func (b bench) notice(m planting, o order) (by string) {
	programs, t := b.programs(m.Mutant), newTally()
	o.only, o.workers = m.only, min(o.workers, 2)
	err := rig.Attempt(func() {
		if m.only == together {
			b.twoEnds(programs, t)
		} else {
			b.faults(o, programs, t)
		}
	})
	if wrong := wrongHistory(""); errors.As(err, &wrong) {
		return string(wrong)
	}
	if rig.Try(err); len(t.failed) > 0 {
		by = t.failed[0]
	}
	return by
}
