package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"bookend/test/cluster"
)

type options struct {
	Packages string // folder of the packages
	Older    string // commit
	Keep     bool
}

// bench is where things are shown.
type bench struct {
	options
	dir    string // scratch
	began  time.Time
	part   string
	shown  int
	failed []string
	ends   []func() error // the part's own, last first
}

func newBench(o options) (*bench, error) {
	packages, err := filepath.Abs(o.Packages)
	if err != nil {
		return nil, err
	}
	o.Packages = packages
	dir, err := cluster.Scratch()
	return &bench{options: o, dir: dir, began: time.Now()}, err
}

// giveUp ends a part whose next step makes no sense without the last.
type giveUp struct{}

// run shows a part, and takes away what it made.
func (b *bench) run(p part) {
	b.part = p.name
	b.say("-- %s", p.what)
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(giveUp); !ok {
				panic(r)
			}
		}
		b.cleanUp()
	}()
	p.show(b)
}

// cleanUp takes away what a part made, last first.
func (b *bench) cleanUp() {
	for len(b.ends) > 0 {
		end := b.ends[len(b.ends)-1]
		b.ends = b.ends[:len(b.ends)-1]
		if err := end(); err != nil {
			b.fails("cleaning up", err)
		}
	}
}

// later is done when the part ends.
func (b *bench) later(do func() error) { b.ends = append(b.ends, do) }

func (b *bench) say(format string, args ...any) {
	fmt.Printf("%-9s %s\n", b.part, fmt.Sprintf(format, args...))
}

// shows says that something was shown, or why not. It reports whether it was.
func (b *bench) shows(what string, err error) bool {
	if err != nil {
		b.fails(what, err)
		return false
	}
	b.shown++
	b.say("ok   %s", what)
	return true
}

func (b *bench) fails(what string, err error) {
	b.failed = append(b.failed, b.part+": "+what)
	b.say("FAIL %s: %s", what, strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "\n            "))
}

// needs is shows, of what all that follows stands on.
func (b *bench) needs(what string, err error) {
	if !b.shows(what, err) {
		panic(giveUp{})
	}
}

// must is for what is not worth a line.
func (b *bench) must(what string, err error) {
	if err != nil {
		b.fails(what, err)
		panic(giveUp{})
	}
}

func (b *bench) verdict(now time.Time) error {
	if len(b.failed) > 0 {
		return fmt.Errorf("%d of %d things were not shown:\n  %s", len(b.failed), b.shown+len(b.failed), strings.Join(b.failed, "\n  "))
	}
	fmt.Printf("install-test: %d things shown, in %.0f s\n", b.shown, now.Sub(b.began).Seconds())
	return nil
}

// end takes the scratch folder away.
func (b *bench) end() error {
	b.cleanUp() // of a part that was interrupted
	if b.Keep {
		fmt.Println("install-test: kept:", b.dir)
		return nil
	}
	return cluster.Remove(b.dir)
}

// command runs a program of this machine's and returns what it said; an error says it too.
func command(name string, args ...string) (string, error) {
	return finish(exec.Command(name, args...))
}

func finish(cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, last(out.String(), 30))
	}
	return out.String(), nil
}

func last(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// one is the only file of a pattern.
func one(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%s: %d files, want one: %q", pattern, len(found), found)
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}

// says checks that a text has all pieces, and none that begins with "!".
func says(text string, pieces ...string) error {
	var errs []error
	for _, piece := range pieces {
		without, no := strings.CutPrefix(piece, "!")
		if no && strings.Contains(text, without) {
			errs = append(errs, fmt.Errorf("it says %q", without))
		}
		if !no && !strings.Contains(text, piece) {
			errs = append(errs, fmt.Errorf("it lacks %q", piece))
		}
	}
	if errs != nil {
		errs = append(errs, errors.New(last(text, 40)))
	}
	return errors.Join(errs...)
}

// holds checks that a file has all pieces.
func holds(path string, pieces ...string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return says(string(text), pieces...)
}

// absent checks that files are not there.
func absent(paths ...string) error {
	var errs []error
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			errs = append(errs, fmt.Errorf("%s is there", path))
		}
	}
	return errors.Join(errs...)
}

// byScript shows a part that needs no Slurm: made.sh has them, and prints them itself.
func byScript(b *bench) {
	script := exec.Command("test/install/made.sh", b.Packages, b.dir, b.part)
	script.Stdout, script.Stderr = os.Stdout, os.Stderr
	b.shows("all that made.sh shows", script.Run())
}
