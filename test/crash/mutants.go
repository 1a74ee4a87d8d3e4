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
	only string // the faults to be tried; empty: none
	both bool   // two ends at once
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

// faulted is the part that tries the faults whose name contains a text.
func faulted(only string) planting { return planting{only: only} }

// of is the mistake that a part must notice.
func (p planting) of(name, file, old, change string) planting {
	p.Mutant = mutant.Mutant{Name: name, File: file, Old: old, New: change}
	return p
}

// writing are the faults in the writing of a run's record.
const writing = "start: hook write run/state"

// plantings are the mistakes that must be noticed.
var plantings = []planting{
	faulted(writing).of("written in place", writeFile, safely, inPlace),
	faulted(writing).of("renamed before it is written", writeFile, safely, renameFirst),
	faulted("no fault").of("a name on disk without a sync", writeFile,
		"return retry(func() error { return unix.Fsync(dirfd) })", "return nil"),
	faulted(writing).of("half a file left", writeFile, `
	if err != nil {
		_ = unix.Unlinkat(dirfd, temp, 0)
`, `
	if err != nil {
`),
	faulted("no fault").of("on disk without a sync", writeFile, `
	if a.durable {
		return f.Sync()
	}
`, "\n"),
	faulted("no fault").of("another job's record taken", "internal/state/runs.go",
		"case r.Job.Node != node || r.Job.ID != id || r.Key != key:", "case r.Job.Node != node:"),
	faulted("no fault").of("damage removed, not set aside", "internal/state/file.go",
		"_ = os.Rename(filepath.Join(s.dir, path), to)", "_ = os.Remove(filepath.Join(s.dir, path))"),
	planting{both: true}.of("lock shared by two ends", "internal/state/state.go",
		"safefile.Lock(filepath.Join(s.dir, name), lockWait, true)",
		"safefile.Lock(filepath.Join(s.dir, name), lockWait, false)"),
	faulted("end: hook renameat run/state").of("an end that was not kept, and not said", "internal/stage/epilog.go",
		"r.Try(r.Store.Close(run, r.end()))", "_ = r.Store.Close(run, r.end())"),
	faulted(writing).of("what was interrupted never swept", "internal/state/archive.go",
		"s.sweep(now), ", ""),
	faulted("end with a leak: disk renameat var").of("what was interrupted on disk never swept",
		"internal/state/archive.go",
		"stale := strings.HasPrefix(f.Name(), safefile.TempPrefix)", "stale := false"),
}

// mutants plants each, and prints what noticed it.
func (b bench) mutants(o order) error {
	survived := 0
	for _, m := range plantings {
		if !strings.Contains(m.Name, o.only) {
			continue
		}
		by, err := b.notice(m, o)
		if err != nil {
			return err
		}
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
func (b bench) notice(m planting, o order) (by string, err error) {
	programs, err := b.programs(m.Mutant)
	if err != nil {
		return "", err
	}
	t := newTally()
	if o.only = m.only; m.both {
		err = b.twoEnds(programs, t)
	} else {
		o.workers = min(o.workers, 2)
		err = b.faults(o, programs, t)
	}
	if wrong := wrongHistory(""); errors.As(err, &wrong) {
		return string(wrong), nil
	}
	if len(t.failed) == 0 {
		return "", err
	}
	return t.failed[0], err
}
