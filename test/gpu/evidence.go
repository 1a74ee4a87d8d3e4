package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"bookend/test/gpu/runrecord"
)

// evidence writes down what nvidia-smi says at this moment; in a rehearsal, the fake driver's books.
func (r *run) evidence(when string) {
	if w := r.site.World(r.node); w != nil {
		r.books(when)
		return
	}
	for _, args := range [][]string{
		{"--query-gpu=index,uuid,pci.bus_id,memory.used,memory.free", "--format=csv"},
		{"--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv"},
	} {
		r.record(when, args...)
	}
}

func (r *run) record(when string, args ...string) {
	if r.smi == "" {
		return
	}
	out, err := exec.Command(r.smi, args...).CombinedOutput()
	text := string(out)
	if err != nil {
		text += "\n" + err.Error()
	}
	r.rec.Evidence = append(r.rec.Evidence, runrecord.Evidence{
		When: when, Command: "nvidia-smi " + strings.Join(args, " "), Output: text,
	})
}

func (r *run) books(when string) {
	all, err := r.site.World(r.node).Holdings()
	e := runrecord.Evidence{When: when, Command: "the fake driver's books"}
	for _, h := range all {
		e.Output += fmt.Sprintf("card %d pid %d context %d hidden %d memory %d mapped %d\n", h.Card, h.PID, h.Context,
			h.Hidden, h.Memory, h.Mapped)
	}
	if err != nil {
		e.Output += err.Error()
	}
	r.rec.Evidence = append(r.rec.Evidence, e)
}

// A node's log is read from where a run began; so many of its lines are kept.
const maxSlurmLines = 60

// slurmLines are what slurmd's log says of the node's hooks since a place in it.
func (l *lane) slurmLines(from int) []string {
	log, err := l.site.SlurmdLog(l.node)
	if err != nil {
		return []string{err.Error()}
	}
	about := regexp.MustCompile(`(?i)prolog|epilog|drain`)
	var lines []string
	for line := range strings.Lines(log[min(from, len(log)):]) {
		if about.MatchString(line) && !strings.Contains(line, "RPC") {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return slices.Clip(lines[:min(len(lines), maxSlurmLines)])
}

func (l *lane) slurmAt() int {
	log, _ := l.site.SlurmdLog(l.node) // empty at first
	return len(log)
}
