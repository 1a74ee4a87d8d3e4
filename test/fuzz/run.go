package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// grace is what a target may take beside its time: to be compiled with the fuzzer's counters, and to shrink an input.
const grace = 3 * time.Minute

// result is what became of one target.
type result struct {
	target
	executions int
	inputs     int    // that reached something new: kept in Go's cache for the next time
	kept       string // the input that failed; empty where none was written
	late       bool   // go test failed for its own time's end alone
	err        error  // of go test
	output     string
}

// runAll gives the results as they come.
func (p plan) runAll(chosen []target) iter.Seq[result] {
	return func(yield func(result) bool) {
		todo, done := make(chan target), make(chan result)
		var workers sync.WaitGroup
		for range min(p.jobs, len(chosen)) {
			workers.Go(func() {
				for t := range todo {
					done <- p.try(t)
				}
			})
		}
		go func() {
			for _, t := range chosen {
				todo <- t
			}
			close(todo)
			workers.Wait()
			close(done)
		}()
		going := true
		for r := range done {
			going = going && yield(r)
		}
	}
}

// try fuzzes a target, once more where Go took a machine that stood still for a hang: it ends a process of which one
// execution takes 10 s, and keeps an input that is well by itself.
func (p plan) try(t target) result {
	r := p.once(t)
	if r.kept == "" || !strings.Contains(r.output, "fuzzing process hung or terminated unexpectedly") {
		return r
	}
	again := p.command("go", "test", "-run=^"+t.name+"$/^"+filepath.Base(r.kept)+"$", "-timeout=10s", t.pkg)
	if again.Run() != nil || os.Remove(filepath.Join(p.dir, r.kept)) != nil {
		return r
	}
	return p.once(t)
}

// once fuzzes one target with one worker. An input is shrunk for 100 runs only: without a bound that takes most of the time
// where one run takes half a millisecond. Its process group is killed when it does not end in time: an input that never
// comes to an end is a fault too.
func (p plan) once(t target) result {
	ctx, cancel := context.WithTimeout(context.Background(), p.time+grace)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-fuzz=^"+t.name+"$", "-fuzztime="+p.time.String(),
		"-fuzzminimizetime=100x", "-parallel=1", t.pkg)
	cmd.Dir = p.dir
	cmd.Env = inMemory()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("no end within %v of its time: %w", grace, ctx.Err())
	}
	r := parse(out.String())
	r.target, r.err, r.late = t, err, r.late && ctx.Err() == nil
	if r.kept != "" {
		r.kept = filepath.Join(t.pkg, r.kept)
	}
	return r
}

// memory is a file system in memory, on most machines.
const memory = "/dev/shm"

// inMemory is the environment of a target: it writes its files, if any, in memory, where that is to be had. Go ends a target
// of which one execution takes 10 s, and a disk that others keep busy can take so long.
func inMemory() []string {
	env := os.Environ()
	if st, err := os.Stat(memory); err == nil && st.IsDir() {
		env = append(env, "GOTMPDIR="+cmp.Or(os.Getenv("GOTMPDIR"), os.TempDir()), "TMPDIR="+memory)
	}
	return env
}

var (
	progress = regexp.MustCompile(`(?m)^fuzz: elapsed: \S+, execs: (\d+) .*?new interesting: (\d+)`)
	written  = regexp.MustCompile(`(?m)^\s*Failing input written to (\S+)$`)
	// Go before 1.27 may take the end of a target's time for a failure: its coordinator compares two contexts of which one
	// has ended a moment before the other. It then says this and nothing else.
	late = regexp.MustCompile(`(?m)^--- FAIL: \S+ \(\S+\)\n\s+context deadline exceeded\nFAIL$`)
	seed = regexp.MustCompile(`(?m)^\s*failure while testing seed corpus entry: (\S+)$`)
)

// parse reads what go test prints of a fuzz target. The last line of progress counts.
func parse(output string) result {
	r := result{output: output}
	if all := progress.FindAllStringSubmatch(output, -1); len(all) > 0 {
		last := all[len(all)-1]
		r.executions, _ = strconv.Atoi(last[1])
		r.inputs, _ = strconv.Atoi(last[2])
	}
	if file := written.FindStringSubmatch(output); file != nil {
		r.kept = file[1]
	} else if name := seed.FindStringSubmatch(output); name != nil && !strings.Contains(name[1], "seed#") {
		r.kept = filepath.Join("testdata/fuzz", name[1])
	}
	r.late = r.kept == "" && late.MatchString(output)
	return r
}

func (r result) ok() bool { return (r.err == nil || r.late) && r.executions > 0 }

// result is one word, or where the input lies that failed.
func (r result) result() string {
	switch {
	case r.kept != "":
		return "FAILED: " + r.kept
	case errors.Is(r.err, context.DeadlineExceeded):
		return "HANGS"
	case r.err != nil && !r.late:
		return "FAILED"
	case r.executions == 0:
		return "EXECUTED NOTHING"
	}
	return "ok"
}

// mostSaid is how much of a failed target's output is shown: its end.
const mostSaid = 40

// said is what go test printed, without its lines of progress.
func (r result) said() string {
	var lines []string
	for line := range strings.Lines(r.output) {
		if !strings.HasPrefix(line, "fuzz: ") {
			lines = append(lines, "    "+strings.TrimRight(line, "\n")+"\n")
		}
	}
	if r.err != nil {
		lines = append(lines, fmt.Sprintf("    %v\n", r.err))
	}
	return strings.Join(lines[max(0, len(lines)-mostSaid):], "")
}
