package child

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/must"
	"bookend/test/refuse"
)

// noFile refuses an open by package os, of no directory.
var noFile = refuse.Call{Number: unix.SYS_OPENAT, Errno: unix.ENFILE, When: []refuse.Arg{{Index: 2, Is: unix.O_CLOEXEC}}}

func refused(t *testing.T, f func(), calls ...refuse.Call) {
	t.Helper()
	must.Do(t, refuse.Run(calls, f))
}

// A child whose start time cannot be read runs all the same, and is unknown later: it is never taken for another.
func TestUnknownStartTime(t *testing.T) {
	p := must.Have(openPipes())(t)
	defer p.closeOurs()
	var b birth
	s := self("")
	s.Path = "/proc/self/exe"
	refused(t, func() { b = start(s, p) }, noFile)
	if b.err != nil || b.pid == 0 || b.ticks != 0 || Alive("/proc", b.pid, b.ticks) {
		t.Errorf("%+v", b)
	}
	kill(b.pid)
	if _, err := reap(b.pid); err != nil {
		t.Error(err)
	}
}

// A process that is not there to be waited for is given up, not taken for ended; what cannot be reaped says why.
func TestNotToBeWaitedFor(t *testing.T) {
	var res Result
	if res.finish(Exited, awaitZombie(1)); res.Outcome != Abandoned || !errors.Is(res.Err, unix.ECHILD) {
		t.Errorf("%+v", res)
	}
	res = Result{PID: 1}
	if res.finish(Exited, nil); !errors.Is(res.Err, unix.ECHILD) {
		t.Errorf("%+v", res)
	}
}

// A panic beside Run comes back as an error.
func TestPanicsComeBack(t *testing.T) {
	c := launch(self("echo"), nil)
	if b := <-c.born; b.err == nil || b.pid != 0 {
		t.Errorf("started with no pipes: %+v", b)
	}
	r, w, err := os.Pipe()
	must.Do(t, err)
	defer r.Close()
	_, err = w.WriteString("text")
	w.Close()
	if out := <-gather(r, keeper{limit: -1}); err != nil || out.err == nil {
		t.Errorf("%v: kept %q of a pipe with room for -1 bytes", err, out.bytes)
	}
}
