package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"bookend/test/build"
	"bookend/test/rig"
)

// rack is the machine of the torture: a file system of its own, root's all the way up as hooks demand, the programs,
// and one world for each worker.
type rack struct {
	seed   uint64
	module string
	dir    string
	worlds atomic.Int32
}

// spare keeps this process, and all that it starts, to every second processor. Who reaps a process waits busily, on
// Linux, for whoever was reading of it in /proc and was interrupted: with nobody else's processor left, hooks and
// whoever looks at all processes of the machine got ten times slower. To be called before mountns.Enter.
func spare() {
	runtime.LockOSThread() // the choice is this thread's, and its program's after exec
	var all, second unix.CPUSet
	_ = unix.SchedGetaffinity(0, &all)
	for cpu := 1; cpu < len(all)*64; cpu += 2 {
		if all.IsSet(cpu) {
			second.Set(cpu)
		}
	}
	if second.Count() > 0 {
		_ = unix.SchedSetaffinity(0, &second) // else it is slower, and right all the same
	}
}

// newRack makes its file system in this mount namespace: it ends with it.
func newRack(seed uint64) (*rack, error) {
	module, err := rig.Module()
	if err != nil {
		return nil, err
	}
	if err := unix.Mount("none", ground, "tmpfs", 0, "mode=0755"); err != nil {
		return nil, fmt.Errorf("mount on %q: %w", ground, err)
	}
	return &rack{seed: seed, module: module, dir: ground}, nil
}

// ground is a folder of root's that is everywhere and holds nothing that is needed. It is hidden in this mount
// namespace alone, and a torture that is killed leaves nothing behind.
const ground = "/mnt"

func (r *rack) close() error {
	if err := unix.Unmount(r.dir, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %q: %w", r.dir, err)
	}
	return nil
}

// build makes the epilog as the Makefile does, without a guard where one is named.
func (r *rack) build(without guard) (program string, err error) {
	folder, err := os.MkdirTemp(r.dir, "program-")
	if err != nil {
		return "", fmt.Errorf("make directory: %w", err)
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		return "", err
	}
	overlay := ""
	if without.File != "" {
		if overlay, err = without.Overlay(r.module, folder); err != nil {
			return "", err
		}
	}
	return filepath.Join(folder, "bookend-epilog"), build.Programs(folder, overlay, "bookend-epilog")
}

// stand makes a world with a process of the user's in it.
func (r *rack) stand() (*world, *tracer, error) {
	w, err := newWorld(filepath.Join(r.dir, fmt.Sprintf("w%d", r.worlds.Add(1))))
	if err != nil {
		return nil, nil, err
	}
	s, err := startAsUser()
	return w, &tracer{s}, err
}

// play plays one run in a world of its own.
func (r *rack) play(program string, p plan) (*outcome, error) {
	w, crowd, err := r.stand()
	if err != nil {
		return nil, err
	}
	defer crowd.close()
	defer w.close()
	o, err := w.run(program, p, crowd)
	o.breach(w.contents()...)
	return o, err
}

// torture plays runs, as many at a time as there are processors, until they sum up to what done wants.
func (r *rack) torture(program string, l lane, done func(*outcome) bool) (*outcome, error) {
	var (
		mutex  sync.Mutex
		next   uint64
		failed error
		group  sync.WaitGroup
	)
	sum := newOutcome()
	draw := func() (number uint64, more bool) {
		mutex.Lock()
		defer mutex.Unlock()
		next++
		return next - 1, failed == nil && !done(sum)
	}
	add := func(o *outcome, err error) {
		mutex.Lock()
		defer mutex.Unlock()
		sum.add(o)
		failed = errors.Join(failed, err)
	}
	for range runtime.NumCPU() {
		group.Go(func() { r.work(program, l, draw, add) })
	}
	group.Wait()
	return sum, failed
}

// work plays runs in one world until there are no more, or one of them has spoilt it.
func (r *rack) work(program string, l lane, draw func() (uint64, bool), add func(*outcome, error)) {
	w, crowd, err := r.stand()
	if err != nil {
		add(newOutcome(), err)
		return
	}
	defer w.close()
	defer crowd.close()
	for {
		number, more := draw()
		if !more {
			break
		}
		o, err := w.run(program, newPlan(r.seed, number, l), crowd)
		o.count("runs", 1)
		if err != nil {
			err = fmt.Errorf("run %d: %w", number, err)
		}
		for i := range o.breaches {
			o.breaches[i].text += fmt.Sprintf(" (--seed %d --replay %d)", r.seed, number)
		}
		add(o, err)
		if err != nil || o.harm() != "" {
			return
		}
	}
	last := newOutcome()
	last.breach(w.contents()...)
	add(last, nil)
}

// close lets go of what a world holds; its files end with the rack.
func (w *world) close() {
	for _, s := range w.sentinels {
		_ = unix.Close(s.fd)
	}
	for _, h := range w.fifos {
		_ = unix.Close(h.fd)
	}
	for _, dir := range append(w.folders, w.notify) {
		_ = unix.Close(dir)
	}
	_ = w.output.Close()
}
