package holders

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/attrib"
	"bookend/test/must"
)

// hang makes a process's maps a named pipe: whoever reads it waits for a writer.
func hang(t *testing.T, folder string) (pipe string) {
	t.Helper()
	pipe = filepath.Join(folder, "maps")
	check(os.Remove(pipe))
	check(unix.Mkfifo(pipe, 0o600))
	return pipe
}

// await gives a reader that waits at the pipe what text returns then.
func await(t *testing.T, pipe string, text func() string) {
	t.Helper()
	f := must.Have(os.OpenFile(pipe, os.O_WRONLY, 0))(t)
	defer f.Close()
	if _, err := f.WriteString(text()); err != nil {
		t.Fatal(err)
	}
}

// Processes that hang do not stop the others, and cost no more than what they were asked.
func TestHangingProcesses(t *testing.T) {
	proc := t.TempDir()
	stuck := []string{hang(t, holder(t, proc, "10", "/dev/nvidia1")), hang(t, holder(t, proc, "11", "/dev/null"))}
	slow := hang(t, holder(t, proc, "12", "/dev/null"))
	last := hang(t, holder(t, proc, "13", "/dev/null"))

	c, stop := newCrew(time.Hour)
	defer stop()
	s := must.Have(newSearch(c, proc, "/dev"))(t)
	answer := make(chan attrib.Scan)
	go func() {
		s.descriptors()
		s.mappings()
		answer <- s.result()
	}()
	for _, pipe := range stuck {
		f := must.Have(os.OpenFile(pipe, os.O_WRONLY, 0))(t) // returns when the reader is there, who then waits for text
		defer f.Close()
	}
	await(t, slow, func() string { // it seems to be a holder, and is read again as a whole
		put(t, slow+".next", mapLine("/dev/nvidia2"))
		check(os.Rename(slow+".next", slow))
		return mapLine("/dev/nvidia2")
	})
	await(t, last, func() string { return "" })
	c.end()
	scan := <-answer
	if want := []int{10, 12}; !reflect.DeepEqual(pidsOf(scan), want) || !scan.Holdings[1].Mapped {
		t.Errorf("%+v", scan)
	}
	if h := scan.Holdings[0]; h.Why != "" || h.Cgroup.ID != 77 || h.EnvJobID != 0 {
		t.Errorf("a holder that hangs: %+v", h)
	}
	for _, what := range []string{"time was up", "holders of 1 of 1", "[10]", "11"} {
		if !strings.Contains(scan.Partial, what) {
			t.Errorf("no %q in %q", what, scan.Partial)
		}
	}
}

func TestPanicOfAWorker(t *testing.T) {
	c, stop := newCrew(time.Hour)
	defer stop()
	c.wait(c.send(2, []int{1, 2, 3}, func(_ *reader, pid int) {
		if pid == 2 {
			panic("odd process")
		}
	}), "descriptors")
	if text := c.partial(); !strings.Contains(text, "odd process") || !strings.Contains(text, "of 3 processes") {
		t.Errorf("%q", text)
	}
}

func TestRefused(t *testing.T) {
	for _, tc := range []struct {
		pid      int
		err      error
		is, said bool
	}{
		{10, nil, false, false},
		{10, unix.ENOENT, false, false},
		{10, unix.ESRCH, false, false},
		{10, unix.EACCES, true, true},
		{10, errEnded, true, true},
		{1, unix.EACCES, true, false}, // the init of a sandbox
		{1, unix.EIO, true, true},
	} {
		c, stop := newCrew(time.Hour)
		s := &search{crew: c}
		if is := s.refused(tc.pid, tc.err); is != tc.is || (c.partial() != "") != tc.said {
			t.Errorf("process %d, %v: %v, %q", tc.pid, tc.err, is, c.partial())
		}
		stop()
	}
}

func TestBoundsOfAScan(t *testing.T) {
	c, stop := newCrew(time.Hour)
	defer stop()
	s := &search{crew: c, found: map[int]held{}}
	for pid := range maxHoldings + 1 {
		s.keep(pid+1, held{open: nodes{control: true}})
	}
	s.keep(1, held{open: nodes{uvm: true}}) // a known one is no further one
	if len(s.found) != maxHoldings || !s.found[1].open.uvm || !s.found[1].open.control {
		t.Errorf("%d holders, the first %+v", len(s.found), s.found[1])
	}
	if text := c.partial(); !strings.Contains(text, "holders") || strings.Contains(text, ";") {
		t.Errorf("%q", text)
	}
	links := maxDescriptors - 1
	more := s.more(&links)
	if !more() || more() {
		t.Error("a process's descriptors have no bound")
	}
}
