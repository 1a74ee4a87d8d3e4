package main

import (
	"os"
	"path/filepath"
	"strings"

	"bookend/test/intercept"
)

// twoEnds runs a whole epilog between another one's look at the job's record and its writing: both ends are on record, or
// the log says which is not.
func (b *bench) twoEnds(programs string, t *tally) error {
	dir := b.folder("together")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	n, err := newNode(filepath.Join(dir, "node"), programs, "probe: {at: never}\n") // else the second waits for the first
	if err != nil {
		return err
	}
	end := step{name: "two ends at once", hook: epilog, run: first, world: quiet}
	if _, err := n.whole(step{name: end.name, hook: prolog, run: first, world: quiet}); err != nil {
		return err
	}
	tr := newTracer(n.dir)
	met := false
	var inner error
	_, err = n.call(end, kinds("renameat"), func(_ int, c intercept.Call) intercept.Answer {
		p, ok := tr.point(c)
		if ok && !met && p.role == "hook" && strings.HasPrefix(p.class, "run/state/"+nodeName+"/100/") {
			met = true
			_, inner = n.call(end, nil, nil)
		}
		return intercept.Pass()
	})
	if err != nil || inner != nil {
		return err
	}
	im, err := capture(n.dir)
	if err != nil {
		return err
	}
	folder := filepath.Join(dir, "decoded")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	is, err := im.decode(folder)
	if err != nil {
		return err
	}
	var v verdict
	ends, said := len(is.runs[end.key()].ends), strings.Count(im["log/bookend.log"].data, "BKD-ST-LOCK:")
	if !met || ends+said < 2 || len(is.damage) > 0 {
		v.fault(lost, "two epilogs at once: %d ends on record, %d said to be missing; %q", ends, said, is.damage)
	}
	t.event(event{wrong: v.wrong}, "two ends at once")
	return nil
}

// whole runs a step to its end without a fault.
func (n *node) whole(s step) (outcome, error) {
	if err := n.begin(s); err != nil {
		return outcome{}, err
	}
	return n.call(s, nil, nil)
}
