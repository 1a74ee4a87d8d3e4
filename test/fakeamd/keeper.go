package fakeamd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Holds is the variable by which a real process says what it has: "MINOR:MIB". A card's memory follows it. Each test
// program has its own: several run side by side on one machine.
var Holds = fmt.Sprint("AMDHOLD_", os.Getpid())

type held struct {
	minor int
	bytes uint64
	gone  time.Time // when it ended; zero while it lives
}

// Keep lets the files follow real processes until stop: KFD's entry goes with its process, the memory 100 ms later.
func (w *World) Keep() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		seen, all := map[int]bool{}, map[int]*held{}
		for {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
				w.follow(seen, all)
			}
		}
	}()
	return func() { close(done); <-ended }
}

func (w *World) follow(seen map[int]bool, all map[int]*held) {
	now := map[int]bool{}
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range names {
		pid, _ := strconv.Atoi(filepath.Base(name))
		now[pid] = true
		if h := holds(pid); !seen[pid] && h != nil {
			all[pid], seen[pid] = h, true
			w.Compute(pid, h.minor, h.bytes)
		}
	}
	for pid, h := range all {
		switch {
		case now[pid] && !zombie(pid):
		case h.gone.IsZero():
			h.gone = time.Now()
			w.Gone(pid)
		case time.Since(h.gone) > 100*time.Millisecond:
			delete(all, pid)
			delete(seen, pid)
		}
	}
	for i, c := range w.cards {
		var used uint64
		for _, h := range all {
			if h.minor == c.Minor || slices.Contains(c.Partitions, h.minor) {
				used += h.bytes
			}
		}
		w.Use(i, used)
	}
}

func holds(pid int) *held {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if strings.TrimSpace(string(comm)) != "sleep" {
		return nil
	}
	for entry := range strings.SplitSeq(string(text), "\x00") {
		var h held
		if n, _ := fmt.Sscanf(entry, Holds+"=%d:%d", &h.minor, &h.bytes); n == 2 {
			h.bytes <<= 20
			return &h
		}
	}
	return nil
}

func zombie(pid int) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(rest, "Z")
}
