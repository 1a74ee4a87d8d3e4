package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/ledger"
	"bookend/internal/safefile"
)

// said is all that Archive asks of a run.
func said(r ledger.Run) string {
	text := fmt.Sprint(r.Version, r.Key, r.Job.ID, r.Job.SLUID, r.Job.Node, r.Epoch, r.Archived, r.Closed(), len(r.Ends), lastSeen(r), wall(r).UnixNano(), onCard(r), r.Began())
	if first := r.First(); first != nil {
		text += fmt.Sprint(first.Wall.UnixNano())
	}
	return text
}

// several are runs that differ in whatever Archive decides by.
func several() (runs []ledger.Run) {
	open := full(1)
	open.Key = string(sluidA)
	left, clean, twiceEnded, archived, again, startless := open, open, open, open, open, open
	end := *at(200)
	end.Findings = []finding.Finding{{Code: code.Untraced}, {Code: code.Orphan, GPU: "GPU-1"}}
	left.Ends = []ledger.End{end}
	end.Findings = []finding.Finding{{Code: code.Untraced, Unknown: "x"}}
	clean.Job.ID, clean.Ends = 2, []ledger.End{end}
	twiceEnded.Job.ID, twiceEnded.Ends = 3, []ledger.End{left.Ends[0], end}
	archived.Job.ID, archived.Ends, archived.Archived = 4, []ledger.End{end}, true
	again.Start, again.Epoch.Boot = at(300), "b2"
	startless.Job.ID, startless.Start, startless.Ends = 5, nil, []ledger.End{end}
	runs = []ledger.Run{open, left, clean, twiceEnded, archived, again, startless}
	for i := range runs {
		runs[i].Version = Version
	}
	return runs
}

// An outline tells Archive just what the whole record does.
func TestOutline(t *testing.T) {
	var whole, outlines []ledger.Run
	for _, r := range several() {
		data, err := encode(r)
		must(t, err)
		o, err := outlined(data)
		must(t, err)
		p, err := parse(data)
		must(t, err)
		whole, outlines = append(whole, p), append(outlines, o)
		if said(o) != said(p) || said(o) != said(r) {
			t.Errorf("outline %s, record %s, run %s", said(o), said(p), said(r))
		}
		for n := range len(data) - 1 { // the last byte is the line's end
			_, one := outlined(data[:n])
			_, other := parse(data[:n])
			if !errors.Is(one, errRecord) || !errors.Is(other, errRecord) {
				t.Fatalf("cut at %d: %v, %v", n, one, other)
			}
		}
	}
	for i := range whole {
		at, over := whole[i].Superseded(whole)
		if oAt, oOver := outlines[i].Superseded(outlines); oAt != at || oOver != over {
			t.Errorf("run %d: %v, %v, by its outline %v, %v", i, at, over, oAt, oOver)
		}
	}
	if _, over := whole[0].Superseded(whole); !over {
		t.Error("no run is superseded: nothing was tried")
	}
}

// A marked record is the one that would be written of the run anew, byte for byte.
func TestMark(t *testing.T) {
	for _, r := range several() {
		if r.Archived {
			continue
		}
		data, err := encode(r)
		must(t, err)
		r.Archived = true
		want, err := encode(r)
		must(t, err)
		if got, err := mark(data); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
		var other bytes.Buffer
		must(t, json.Indent(&other, data, "", " "))
		of := bytes.TrimSpace(other.Bytes()) // another hand, which ends with no line
		if got, err := mark(of); err != nil || !bytes.Equal(got, want) {
			t.Errorf("of another hand, %v: %s, want %s", err, got, want)
		}
	}
	for _, text := range []string{"", "{", "}\n", "[]\n", `{"version":9}` + "\n"} {
		if got, err := mark([]byte(text)); !errors.Is(err, errRecord) {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}

// A record that has no room for the mark is written anew, with less in it.
func TestMarkOfALongRecord(t *testing.T) {
	r := several()[0]
	processes := r.Start.Processes
	for len(processes) < 2000 {
		processes = append(processes, processes[0])
	}
	long := func(n int) []byte {
		start := *r.Start
		start.Processes, start.Report = processes, strings.Repeat("x", n)
		r.Start = &start
		data, err := json.Marshal(r)
		must(t, err)
		return append(data, '\n')
	}
	data := long(maxRecord - len(long(1)))
	if len(data) != maxRecord-1 {
		t.Fatal(len(data))
	}
	got, err := mark(data)
	if m, bad := parse(got); err != nil || bad != nil || !m.Archived || len(got) >= maxRecord || len(m.Start.Processes) >= 2000 || len(m.Start.Processes) == 0 {
		t.Errorf("%v, %v: %d bytes, %d processes", err, bad, len(got), len(m.Start.Processes))
	}
}

// The history is gone through once an hour, where the clock was set back, and after an Archive that was killed.
func TestPruneDue(t *testing.T) {
	run, varDir := folder(t), folder(t)
	s := open(t, run)
	history, err := makeHistory(varDir, node)
	must(t, err)
	temp := filepath.Join(history, safefile.TempPrefix+"x")
	for _, tt := range []struct {
		what  string
		after time.Duration
		want  bool
	}{
		{"a boot", 0, true}, {"a moment", time.Second, false}, {"most of an hour", time.Hour - time.Second, false}, {"an hour", time.Hour, true},
		{"less than another", 2*time.Hour - time.Second, false}, {"the clock set back", -time.Hour, true}, {"a day", 23 * time.Hour, true},
	} {
		must(t, os.WriteFile(temp, nil, 0o600))
		must(t, Archive(run, varDir, node, now.Add(tt.after), limits(9, 9)))
		if _, err := os.Lstat(temp); os.IsNotExist(err) != tt.want {
			t.Errorf("after %s: gone through is %v", tt.what, err)
		}
	}
	must(t, s.setPruned(unfinished))
	must(t, Archive(run, varDir, node, now.Add(23*time.Hour), limits(9, 9)))
	if _, err := os.Lstat(temp); !os.IsNotExist(err) {
		t.Errorf("after one that was killed: %v", err)
	}
}

// An Archive that does not come to its end leaves the history to the next.
func TestArchiveInterrupted(t *testing.T) {
	run, varDir := folder(t), folder(t)
	s := open(t, run)
	must(t, Archive(run, varDir, node, now, limits(9, 9)))
	history := historyFolder(varDir, node)
	must(t, os.Rename(history, history+"-aside"))
	must(t, os.WriteFile(history, nil, 0o600))
	if err := Archive(run, varDir, node, now, limits(9, 9)); err == nil {
		t.Fatal("a file in the place of the history is no error")
	}
	if last, err := s.lastPruned(); err != nil || !last.Equal(unfinished) {
		t.Errorf("%v, %v", last, err)
	}
}
