package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// began is the wall time of a story's first hour.
var began = time.Date(2026, 11, 9, 6, 0, 0, 0, time.UTC)

func at(hour float64) time.Time { return began.Add(time.Duration(hour * float64(time.Hour))) }

// spread moves a run that took a moment to its hours of the story. What its hooks saw stays as it was.
func spread(r record) ledger.Run {
	first, last := r.First().Wall, r.First().Wall
	if r.Closed() {
		last = r.Ends[len(r.Ends)-1].Wall
	}
	move := func(t time.Time) time.Time {
		part := 0.0
		if whole := last.Sub(first); whole > 0 {
			part = min(max(float64(t.Sub(first))/float64(whole), 0), 1)
		}
		return at(r.from + part*(r.to-r.from))
	}
	out := r.Run        // nobody else has it
	if r.Start == nil { // its only look is its end
		move = func(time.Time) time.Time { return at(r.to) }
	}
	if out.Start != nil {
		moveEnd(out.Start, move)
	}
	for i := range out.Ends {
		moveEnd(&out.Ends[i], move)
	}
	return out
}

func moveEnd(e *ledger.End, move func(time.Time) time.Time) {
	by := move(e.Wall).Sub(e.Wall)
	e.Wall, e.At, e.Snapshot.At = e.Wall.Add(by), e.At+by, e.Snapshot.At+by
	for i := range e.Health {
		for k := range e.Health[i].Accounting.Processes {
			p := &e.Health[i].Accounting.Processes[k]
			p.Began = move(p.Began)
		}
	}
}

// clone copies a run with all that it points to.
func clone(r ledger.Run) (copied ledger.Run, err error) {
	data, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(data, &copied)
	}
	return copied, err
}

// write writes runs as a history has them.
func write(folder string, made []record) error {
	history := filepath.Join(folder, "history", nodeName)
	if err := os.MkdirAll(history, 0o755); err != nil {
		return err
	}
	for _, r := range made {
		if err := put(history, spread(r)); err != nil {
			return err
		}
	}
	return nil
}

func put(history string, r ledger.Run) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(history, fmt.Sprintf("%d-%s.json", r.Job.ID, r.Key)), append(data, '\n'), 0o600)
}

// crowded is how many jobs a crowd has, in as many days as records are kept.
const (
	crowded = 6000
	crowdIn = 90
)

// crowd makes of a week's records those of a node with thousands of jobs in 90 days: the same runs again and again.
func crowd(from, to, programs string) error {
	all, _, err := state.Copied(from)
	if err != nil {
		return err
	}
	week := slices.DeleteFunc(all[nodeName], func(r ledger.Run) bool { return !r.Closed() })
	history := filepath.Join(to, "history", nodeName)
	if err := os.MkdirAll(history, 0o755); err != nil {
		return err
	}
	for i := range crowded {
		r := week[i%len(week)]
		round := i / len(week)
		shrink := float64(crowdIn) / 6 / (float64(crowded) / float64(len(week)))
		move := func(t time.Time) time.Time {
			return at(t.Sub(began).Hours()*shrink + float64(round)*hours*shrink)
		}
		copied, err := clone(r)
		if err != nil {
			return err
		}
		copied.Job.ID += slurm.JobID(10000 * (round + 1))
		if copied.Start != nil {
			moveEnd(copied.Start, move)
		}
		for k := range copied.Ends {
			moveEnd(&copied.Ends[k], move)
		}
		if err := put(history, copied); err != nil {
			return err
		}
	}
	return page(programs, to)
}
