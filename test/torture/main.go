// Command torture runs the shipped epilog while everything that it looks up is swapped under its hands, and asks
// whether it ever wrote or read what is not its job's user's own. Then it takes one guard after another away from it:
// each time the harm must show.
//
//	torture [--writes N] [--reads N] [--swaps N] [--seed S] [--only TEXT] [--replay N [--guard NAME]]
//
// The program under test is not changed: test/intercept makes it stand still before chosen system calls, so that a swap
// falls between the look-up of a name and its use for sure; a process of the user's tries to trace and to signal the
// children that have become the user.
//
// It needs root and FUSE, and is run in the root of the tree. Exit codes: 0 nothing was breached and every guard was
// missed, 1 otherwise, 64 usage or a torture that does not work here.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"bookend/test/faultinject"
	"bookend/test/rig"
)

func main() {
	faultinject.Serve()
	serveAsUser()
	spare()
	rig.Program("torture", run)
}

// spare keeps this process, and all that it starts, to every second processor. Who reaps a process waits busily, on
// Linux, for whoever was reading of it in /proc and was interrupted: with nobody else's processor left, hooks and
// whoever looks at all processes of the machine got ten times slower. To be called before rig.OwnMounts.
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

//go:embed guards.yaml
var table []byte

// guards are taken away one at a time: the torture must see the harm that each of them prevents.
var guards = faultinject.Mutants(table)

type rack struct {
	*rig.Bench
	seed uint64
}

// run tortures the epilog as it is, until all that was asked for is done, then without one guard after another.
func run(on *rig.Bench, args []string) error {
	flags := flag.NewFlagSet("torture", flag.ContinueOnError)
	writes := flags.Int("writes", 20_000, "writes to a job's output, each with a swap between look-up and use")
	reads := flags.Int("reads", 20_000, "reads of a drop record, each with a swap between look-up and use")
	swaps := flags.Int("swaps", 80_000, "swaps in all")
	seed := flags.Uint64("seed", 1, "seed of all chance")
	only := flags.String("only", "", "take away only the guards whose name contains `TEXT`; - for none")
	replay := flags.Int64("replay", -1, "play run `N` alone")
	without := flags.String("guard", "", "replay it without the guard `NAME`")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read arguments: %w", err)
	}
	r := rack{on, *seed}
	if *replay >= 0 {
		return r.replay(uint64(*replay), *without)
	}
	sum := r.torture(faultinject.Mutant{}, 0, func(sum *outcome) bool {
		return sum.wrote >= *writes && sum.read >= *reads && sum.swaps >= *swaps || len(sum.breaches) > 0
	})
	fmt.Printf("seed %d\n", *seed)
	sum.print(os.Stdout)
	if !faultinject.EachMutant(guards, *only, r.missed) || len(sum.breaches) > 0 {
		return rig.ErrWrong
	}
	return nil
}

// missed plays runs without a guard until one does harm, and says which.
func (r rack) missed(g faultinject.Mutant) (harm string) {
	const patience = 3000
	sum := r.torture(g, 0, func(sum *outcome) bool { return sum.harm() != "" || sum.counts["runs"] >= patience })
	if sum.harm() == "" {
		return ""
	}
	return fmt.Sprintf("after %d runs: %s", sum.counts["runs"], sum.harm())
}

func (r rack) replay(number uint64, without string) error {
	all := append(guards, faultinject.Mutant{}) // the last one is for a replay with all of them
	i := slices.IndexFunc(all, func(g faultinject.Mutant) bool { return g.Name == without })
	if i < 0 {
		return fmt.Errorf("no guard %q", without)
	}
	sum := r.torture(all[i], number, func(sum *outcome) bool { return sum.counts["runs"] > 0 })
	sum.print(os.Stdout)
	if len(sum.breaches) > 0 {
		return rig.ErrWrong
	}
	return nil
}

// torture plays runs from a number on, as many at a time as there are processors, until they sum up to what done wants.
func (r rack) torture(without faultinject.Mutant, next uint64, done func(*outcome) bool) *outcome {
	sum, folder := newOutcome(), rig.Have(r.Build(without, "bookend-epilog"))
	var worlds []*world
	for range runtime.NumCPU() {
		w := r.world()
		defer w.close()
		worlds = append(worlds, w)
	}
	var mu sync.Mutex
	draw := func() (plan, bool) {
		mu.Lock()
		defer mu.Unlock()
		if done(sum) {
			return plan{}, false
		}
		next++
		return newPlan(r.seed, next-1, lane(without.Part)), true
	}
	rig.Try(rig.Each(worlds, draw, func(w *world, p plan) error {
		o, err := w.run(filepath.Join(folder, "bookend-epilog"), p)
		o.count("runs", 1)
		for i := range o.breaches {
			o.breaches[i].text += fmt.Sprintf(" (--seed %d --replay %d)", r.seed, p.number)
		}
		mu.Lock()
		defer mu.Unlock()
		sum.add(o)
		return err
	}))
	return sum
}

// world makes a world with a process of the user's in it.
func (r rack) world() *world {
	w := newWorld(rig.Have(r.Folder("w")))
	w.foe = rig.Have(startAsUser())
	return w
}

// close lets go of what a world holds; its files end with the rack.
func (w *world) close() {
	w.foe.close()
	for _, fd := range w.fds {
		_ = unix.Close(fd)
	}
	_ = w.output.Close()
}

func (w *world) dir(path string, uid int, mode os.FileMode) {
	if err := os.Mkdir(path, mode); !os.IsExist(err) {
		rig.Try(err)
	}
	w.give(path, uid, mode)
}

func (w *world) file(path string, uid int, mode os.FileMode, text string) {
	rig.Try(os.WriteFile(path, []byte(text), mode))
	w.give(path, uid, mode)
}

func (w *world) node(path string, uid int, mode uint32, dev int) {
	rig.Try(unix.Mknod(path, mode, dev))
	w.give(path, uid, os.FileMode(mode&0o777))
}

func (w *world) give(path string, uid int, mode os.FileMode) {
	rig.Try(errors.Join(os.Chown(path, uid, uid), os.Chmod(path, mode)))
}
