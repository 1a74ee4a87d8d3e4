package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"bookend/test/rig"
)

// perLife are the kills in one life: enough for records to be archived and removed.
const perLife = 250

// lives kills hooks in as many lives as it takes, some side by side.
func (b *bench) lives(o order, programs string, t *tally) error {
	folders, err := b.folders("lives", o.workers)
	if err != nil {
		return err
	}
	var numbers []int
	for number := range (o.kills + perLife - 1) / perLife {
		if o.life < 0 || o.life == number {
			numbers = append(numbers, number)
		}
	}
	return rig.Each(folders, numbers, func(folder string, number int) error {
		return spend(folder, programs, o, number, t)
	})
}

// spend is one whole life.
func spend(folder, programs string, o order, number int, t *tally) error {
	if err := errors.Join(os.RemoveAll(folder), os.Mkdir(folder, 0o755)); err != nil {
		return fmt.Errorf("begin life: %w", err)
	}
	l, err := newLife(filepath.Join(folder, "node"), programs, o.seed, uint64(number))
	if err != nil {
		return err
	}
	replay := fmt.Sprintf("--seed %d --kills %d --life %d", o.seed, o.kills, number)
	for kills := 0; kills < min(perLife, o.kills-number*perLife); {
		e, err := l.event()
		if err != nil {
			return err
		}
		if e.killed != alive {
			kills++
		}
		t.event(e, replay)
		if len(e.wrong) > 0 { // what follows would only repeat it
			return nil
		}
	}
	wrong, err := l.finish()
	known.Clear() // else they would grow with every life
	t.event(event{wrong: wrong}, replay)
	return err
}

// settle ends every job that is open on record, as Slurm would have: one of which nobody knows the cards may be on any.
func (l *life) settle() error {
	for key, r := range l.is.runs {
		if key == prelude.key() || len(r.ends) > 0 {
			continue
		}
		open := run{uid: user}
		if _, err := fmt.Sscanf(key, "%d/t%d", &open.id, &open.start); err != nil {
			return fmt.Errorf("settle %q: %w", key, err)
		}
		if _, err := l.whole(step{name: "end of " + key, hook: epilog, run: open, world: quiet}); err != nil {
			return err
		}
	}
	return nil
}

// finish lets two more jobs live undisturbed, long after: one leaves a process, for which the node must drain, and by
// then nothing is left of what was interrupted.
func (l *life) finish() (wrong []string, err error) {
	var v verdict
	long := time.Now().Add(-48 * time.Hour)
	for _, name := range l.now.temporary() {
		if err := os.Chtimes(filepath.Join(l.dir, name), long, long); err != nil {
			return nil, fmt.Errorf("finish: %w", err)
		}
	}
	if err := l.settle(); err != nil {
		return nil, err
	}
	for i := range 2 {
		l.next++
		l.clock++
		j := &job{run: run{id: l.next, start: l.clock, card: freeCards, uid: latecomer}}
		exits := map[hookName]int{prolog: 0, epilog: 10 * i}
		for _, h := range []hookName{prolog, epilog} {
			s := l.step(h, j)
			if h == epilog && i == 1 {
				s.world = func(n *node) error { return leakOn(n, freeCards, latecomer) }
			}
			out, err := l.whole(s)
			if err != nil {
				return nil, err
			}
			if out.exit != exits[h] {
				kind := falseDrain
				if out.exit == 0 {
					kind = unsaid
				}
				log, _ := os.ReadFile(l.in("log/bookend.log"))
				v.fault(kind, "%s, long after: exit %d, not %d: %q, %q", s.name, out.exit, exits[h], out.output,
					log[max(0, len(log)-600):])
			}
		}
	}
	if err := l.see(); err != nil {
		return nil, err
	}
	if left := l.now.temporary(); len(left) > 0 {
		v.fault(litter, "%q", left)
	}
	l.folders(&v)
	return v.wrong, nil
}

// folders looks for those of jobs without a record.
func (l *life) folders(v *verdict) {
	prefix := "run/state/" + nodeName + "/"
	for name, e := range l.now {
		id, below := strings.CutPrefix(name, prefix)
		if !below || !e.mode.IsDir() || id == "damaged" || id == "no-mps" {
			continue
		}
		used := false
		for other := range l.now {
			used = used || strings.HasPrefix(other, name+"/")
		}
		if !used {
			v.fault(litter, "the folder of job %s is empty", id)
		}
	}
}
