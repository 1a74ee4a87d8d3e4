package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"bookend/test/mutant"
)

// planting is a mistake and the part of the run that must notice it.
type planting struct {
	mutant.Mutant
	only  string // the faults to be tried; empty: none
	kills int
	both  bool // two ends at once
}

const (
	writeFile   = "internal/safefile/write.go"
	safely      = "\t\ttemp, err := writeTemp(dirfd, data, a)\n\t\tif err != nil {\n\t\t\treturn err\n\t\t}\n\t\tif err := retry(func() error { return unix.Renameat(dirfd, temp, dirfd, name) }); err != nil {\n\t\t\t_ = unix.Unlinkat(dirfd, temp, 0)\n\t\t\treturn fmt.Errorf(\"rename: %w\", err)\n\t\t}\n"
	inPlace     = "\t\tfd, err := openAt(dirfd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, 0o600)\n\t\tif err != nil {\n\t\t\treturn err\n\t\t}\n\t\tf := os.NewFile(uintptr(fd), name)\n\t\terr = fill(f, data, a)\n\t\tif closing := f.Close(); err == nil {\n\t\t\terr = closing\n\t\t}\n\t\tif err != nil {\n\t\t\treturn err\n\t\t}\n"
	renameFirst = "\t\ttemp, err := tempName()\n\t\tif err != nil {\n\t\t\treturn err\n\t\t}\n\t\tfd, err := openAt(dirfd, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)\n\t\tif err != nil {\n\t\t\treturn err\n\t\t}\n\t\tf := os.NewFile(uintptr(fd), temp)\n\t\tdefer f.Close()\n\t\tif err := unix.Renameat(dirfd, temp, dirfd, name); err != nil {\n\t\t\treturn err\n\t\t}\n\t\tif err := fill(f, data, a); err != nil {\n\t\t\treturn err\n\t\t}\n"
)

// plantings are the mistakes that must be noticed.
var plantings = []planting{
	{only: "start: hook write run/state", Mutant: mutant.Mutant{Name: "written in place", File: writeFile, Old: safely, New: inPlace}},
	{only: "start: hook write run/state", Mutant: mutant.Mutant{Name: "renamed before it is written", File: writeFile, Old: safely, New: renameFirst}},
	{kills: 500, Mutant: mutant.Mutant{Name: "written in place, killed at random", File: writeFile, Old: safely, New: inPlace}},
	{only: "start: hook write run/state", Mutant: mutant.Mutant{
		Name: "half a file left", File: writeFile, Old: "\tif err != nil {\n\t\t_ = unix.Unlinkat(dirfd, temp, 0)\n", New: "\tif err != nil {\n",
	}},
	{only: "no fault", Mutant: mutant.Mutant{
		Name: "on disk without a sync", File: writeFile, Old: "\tif a.durable {\n\t\treturn f.Sync()\n\t}\n", New: "",
	}},
	{only: "no fault", Mutant: mutant.Mutant{
		Name: "another job's record taken", File: "internal/state/run.go",
		Old: "(r.Job.Node != node || r.Job.ID != id || r.Key != key)", New: "r.Job.Node != node",
	}},
	{only: "no fault", Mutant: mutant.Mutant{
		Name: "damage removed, not set aside", File: "internal/state/damaged.go",
		Old: "_ = os.Rename(filepath.Join(s.dir, path), to)", New: "_ = os.Remove(filepath.Join(s.dir, path))",
	}},
	{both: true, Mutant: mutant.Mutant{
		Name: "lock shared by two ends", File: "internal/state/state.go",
		Old: "safefile.Lock(filepath.Join(s.dir, name), lockWait, true)", New: "safefile.Lock(filepath.Join(s.dir, name), lockWait, false)",
	}},
	{only: "end: hook renameat run/state", Mutant: mutant.Mutant{
		Name: "an end that was not kept, and not said", File: "internal/stage/epilog.go",
		Old: "d.Try(d.Store.Close(run, r.end(d)))", New: "_ = d.Store.Close(run, r.end(d))",
	}},
	{kills: 250, Mutant: mutant.Mutant{
		Name: "what was interrupted never swept", File: "internal/state/archive.go", Old: "all = append(all, s.sweep(now))", New: "",
	}},
	{kills: 250, Mutant: mutant.Mutant{
		Name: "what was interrupted on disk swept after an hour", File: "internal/state/archive.go", Old: "s.setPruned(unfinished)", New: "s.setPruned(last)",
	}},
}

// mutants plants each, and prints what noticed it.
func (b *bench) mutants(o order) error {
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
		return errWrong
	}
	return nil
}

// notice says what notices a planted mistake, "" for nothing.
func (b *bench) notice(m planting, o order) (by string, err error) {
	folder := b.folder("mutant")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return "", err
	}
	overlay, err := m.Overlay(b.root, folder)
	if err != nil {
		return "", err
	}
	programs, err := b.build("mutated", overlay)
	if err != nil {
		return "", err
	}
	t := newTally()
	o.only, o.kills, o.life = m.only, m.kills, -1
	switch {
	case m.both:
		err = b.twoEnds(programs, t)
	case m.kills > 0:
		err = b.lives(o, programs, t)
	default:
		o.workers = min(o.workers, 2)
		err = b.faults(o, programs, t)
	}
	if wrong := (wrongHistory{}); errors.As(err, &wrong) {
		return wrong.why, nil
	}
	if t.failures() == 0 {
		return "", err
	}
	return t.failed[0], err
}
