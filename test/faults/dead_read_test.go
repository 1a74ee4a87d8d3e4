package faults

import (
	"encoding/binary"
	"fmt"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/attrib"
	"bookend/internal/child"
	"bookend/internal/code"
	"bookend/internal/state"
)

// Operations of the FUSE protocol (linux/fuse.h) that reading one file takes, and the lengths of its headers.
const (
	fuseGetattr = 3
	fuseOpen    = 14
	fuseRead    = 15
	fuseInit    = 26
	fuseIn      = 40 // length, operation, unique, node, uid, gid, pid, padding
	fuseOut     = 16 // length, error, unique
	fuseDirect  = 1  // FOPEN_DIRECT_IO: a read waits for the server, not for a page
)

// dead mounts a file that can be opened over a path. Whoever reads it sleeps so that no signal ends it: the server has taken
// the request, and does not answer. undo ends that.
func (n *node) dead(path string) (undo func()) {
	n.Helper()
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(n, err)
	must(n, unix.Mount("none", path, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=100444,user_id=0,group_id=0,allow_other", dev)))
	served := make(chan struct{})
	go func() {
		defer close(served)
		serveDead(dev)
	}()
	undo = func() {
		_ = unix.Unmount(path, unix.MNT_FORCE) // aborts the connection: who waits gets an error, the server too
		_ = unix.Unmount(path, unix.MNT_DETACH)
		<-served
	}
	return undo
}

func serveDead(dev int) {
	defer unix.Close(dev)
	for request := make([]byte, 1<<20); ; {
		got, err := unix.Read(dev, request)
		if err == unix.EINTR || err == unix.ENOENT {
			continue
		}
		if err != nil || got < fuseIn {
			return
		}
		var body []byte
		order, failed := binary.NativeEndian, unix.Errno(0)
		switch order.Uint32(request[4:]) {
		case fuseInit:
			body = make([]byte, 64)
			order.PutUint32(body, 7)
			order.PutUint32(body[4:], 31)
			order.PutUint32(body[20:], 4096) // the longest write
		case fuseGetattr:
			body = make([]byte, 104)
			order.PutUint64(body[16:], 1)    // inode
			order.PutUint64(body[24:], 4096) // size
			order.PutUint32(body[76:], 0o100444)
			order.PutUint32(body[80:], 1) // links
		case fuseOpen:
			body = make([]byte, 16)
			order.PutUint32(body[8:], fuseDirect)
		case fuseRead:
			continue
		default:
			failed = unix.ENOSYS
		}
		reply := make([]byte, fuseOut, fuseOut+len(body))
		order.PutUint32(reply, uint32(fuseOut+len(body)))
		order.PutUint32(reply[4:], uint32(-int32(failed)))
		copy(reply[8:], request[8:16])
		_, _ = unix.Write(dev, append(reply, body...))
	}
}

// readers are the stuck readers of /proc on this node's record.
func (n *node) readers() []state.Reader {
	n.Helper()
	store, err := state.Open(n.conf.run, nodeName)
	must(n, err)
	return store.Readers(func(s state.Stuck) bool { return child.Alive("/proc", s.PID, s.StartTicks) })
}

// A process whose environment nobody can read, and whose reader nobody can end, costs one stuck child: what was read of the
// others counts, the driver is asked as before, and following hooks leave that process alone.
func TestDeadEnvironmentCostsOneReader(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.ownPrograms()
	n.clean(n.own(prolog), newJob())
	left, odd := n.leftover(), n.leftover()
	n.inCgroup(left, "100")
	undo := n.dead("/proc/" + strconv.Itoa(odd.PID) + "/environ")
	defer undo()
	for run := range 2 {
		n.hook(n.own(epilog), newJob())
		found := n.findings(epilog)
		if !named(found, left.PID) || has(found, code.Stuck) || has(found, code.Hang) || has(found, code.BackendCrash) {
			t.Errorf("end %d: %+v\n%s", run, found, n.log())
		}
		if orphans := n.orphans(); orphans[left.PID].Owner == nil || orphans[left.PID].Owner.Level != attrib.ByCgroup || orphans[odd.PID].Owner != nil {
			t.Errorf("end %d: %+v", run, orphans)
		}
		n.unkillable(1)
		if on := n.readers(); len(on) != 1 || len(on[0].At) != 1 || on[0].At[0].PID != odd.PID || on[0].At[0].Start == 0 {
			t.Errorf("end %d: on record %+v", run, on)
		}
	}
	undo()
	n.none()
	if on := n.readers(); len(on) != 0 {
		t.Errorf("on record still: %+v", on)
	}
	n.hook(n.own(epilog), newJob())
	if found := n.findings(epilog); !named(found, odd.PID) {
		t.Errorf("once it can be read: %+v", found)
	}
}

// The command line leaves one reader behind at most, puts it on record for the hooks, and leaves alone what they got stuck at.
func TestStatusAndDoctorCostOneReader(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.ownPrograms()
	n.clean(n.own(prolog), newJob())
	odd := n.leftover()
	undo := n.dead("/proc/" + strconv.Itoa(odd.PID) + "/environ")
	defer undo()
	for _, command := range []string{"status", "doctor", "status", "doctor"} {
		cmd := exec.Command(n.in("bin/bookend"), command)
		cmd.Env = []string{"BOOKEND_CONFIG=" + n.config}
		if text, err := cmd.CombinedOutput(); len(text) == 0 {
			t.Errorf("%s: %v", command, err)
		}
		n.unkillable(1)
		if on := n.readers(); len(on) != 1 || len(on[0].At) != 1 || on[0].At[0].PID != odd.PID {
			t.Errorf("%s: on record %+v", command, on)
		}
	}
	n.hook(n.own(epilog), newJob())
	n.unkillable(1)
	undo()
	n.none()
}
