//go:build cgo

package fakegpu

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"bookend/test/must"
)

const context, listedContext = 527 * MiB, 518 * MiB // what one adds to used, and to its process's figure

// everybody is a user without rights; user are the device nodes that a program of CUDA's has open.
var (
	everybody = &syscall.Credential{Uid: 65534, Gid: 65534}
	user      = []string{"nvidia-uvm", "nvidia0", "nvidiactl"}
)

// measured are the programs as they were on real GPUs.
var measured = map[string]struct {
	args   string
	as     *syscall.Credential
	used   uint64 // of the first card
	listed uint64 // the process's own figure; 0: it is listed nowhere
	nodes  []string
	state  string // of proc(5); with Z its nodes show under its threads alone
	mps    int
}{
	"alloc": {args: "alloc --mib 20480", used: 20480*MiB + context, listed: 20480*MiB + listedContext,
		nodes: user},
	"innocent":    {args: "holdctl", nodes: []string{"nvidiactl"}},
	"memory only": {args: "alloc --mib 1024 --no-context", used: (1024 + 3) * MiB, nodes: user},
	"stopped": {args: "alloc --mib 10 --stop", used: 10*MiB + context, listed: 10*MiB + listedContext,
		nodes: user, state: "T"},
	"leaderless": {args: "alloc --mib 10 --leader-exits", used: 10*MiB + context, listed: 10*MiB +
		listedContext, nodes: user, state: "Z"},
	"in the MPS list": {args: "alloc --mib 10 --list mps", used: 10*MiB + context, listed: 10*MiB +
		listedContext, nodes: user, mps: 1},
	"another namespace": {args: "alloc --mib 64 --pidns", as: everybody, used: 64*MiB + context, listed: 64*MiB +
		listedContext, nodes: user},
	"orphan of a user": {args: "alloc --mib 64 --orphan", as: everybody, used: 64*MiB + context, listed: 64*MiB +
		listedContext, nodes: user},
	"probe":       {args: "probe --mib 1024 --lock {dir}/lock", used: (1024 + 3) * MiB, nodes: user},
	"nearly full": {args: "alloc --near-full 200", used: 142956 * MiB, listed: 142956*MiB - 9*MiB, nodes: user},
}

// What a program is on its card and in /proc while it lives; when it is killed nothing is
// left.
func TestPrograms(t *testing.T) {
	for name, tt := range measured {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, GPUs(1))
			c := attach(t, w)
			p := must.Have(w.StartAs(tt.as, nil, strings.Fields(strings.ReplaceAll(tt.args, "{dir}", w.Dir()))...))(t)
			t.Cleanup(p.End)
			folder := fmt.Sprintf("/proc/%d/fd", p.PID)
			if tt.state != "" {
				awaitState(t, p.PID, tt.state)
			}
			if tt.state == "Z" {
				if got := openNodes(t, w, folder); len(got) > 0 {
					t.Errorf("the process shows %v", got)
				}
				folder = fmt.Sprintf("/proc/%d/task/*/fd", p.PID)
			}
			if got := slices.Compact(openNodes(t, w, folder)); !slices.Equal(got, tt.nodes) {
				t.Errorf("holds %v, want %v", got, tt.nodes)
			}
			var listed []process
			if tt.listed > 0 {
				listed = []process{{pid(p), tt.listed}}
			}
			near := func(a, b uint64) bool { return max(a, b)-min(a, b) <= 3*MiB }
			l := c.look().Cards[0]
			same := len(l.Compute) == len(listed) && (listed == nil || l.Compute[0].PID == pid(p) &&
				near(l.Compute[0].Bytes, tt.listed))
			if !near(l.Used, tt.used) || !same || len(l.MPS) != tt.mps {
				t.Errorf("used %d MiB, listed %v and %v; want %d MiB, %v and %d of MPS", l.Used/MiB, l.Compute, l.MPS,
					tt.used/MiB, listed, tt.mps)
			}
			must.Do(t, p.Kill())
			c.eventually("free memory", func(l look) bool { return l.Cards[0].Used == 0 && l.Cards[0].Compute == nil })
		})
	}
}

// Memory whose creator is gone: what the driver lists, how much is used, and what who keeps it has open.
func TestWithoutTheirCreator(t *testing.T) {
	w := newWorld(t)
	keep(t, w)
	c := attach(t, w)
	p := start(t, w, "alloc", "--mib", "20480", "--fork-hold")
	kill(t, p) // reaps it: it is dead
	c.is(0, 20480*MiB+context, process{pid(p), 20480*MiB + listedContext})
	if n := times(t, w, p.Holder, "nvidia0"); n != 20 || p.Holder == p.PID {
		t.Errorf("the child %d holds nvidia0 %d times, want 20", p.Holder, n)
	}
	must.Do(t, syscall.Kill(p.Holder, syscall.SIGKILL))
	c.eventually("free memory", free)

	p = start(t, w, "alloc", "--mib", "100", "--workers", "2", "--workers-life", "0.5")
	kill(t, p)
	c.is(0, 100*MiB+context, process{pid(p), 100*MiB + listedContext})
	c.eventually("free memory", free)
}

func kill(t *testing.T, p *Program) {
	t.Helper()
	must.Do(t, p.Kill())
}

func free(l look) bool { return l.Cards[0].Used == 0 && l.Cards[0].Compute == nil }

// Memory that others hold or map outlives its creator, too.
func TestSharedMemory(t *testing.T) {
	w := newWorld(t)
	keep(t, w)
	c := attach(t, w)
	socket := filepath.Join(w.Dir(), "export.sock")
	holder := start(t, w, "holdfd", socket)
	kill(t, start(t, w, "alloc", "--mib", "20480", "--export", socket))
	c.eventually("the context's end", func(l look) bool {
		return l.Cards[0].Used == 20480*MiB && l.Cards[0].Compute == nil
	})
	if got := heldNodes(t, w, holder.PID); !slices.Equal(got, []string{"nvidiactl"}) {
		t.Errorf("the holder holds %v", got)
	}
	kill(t, holder)
	c.eventually("free memory", free)

	socket = filepath.Join(w.Dir(), "ipc.sock")
	exporter := start(t, w, "ipc-export", "--mib", "20480", "--socket", socket)
	importer := start(t, w, "ipc-import", "--socket", socket)
	_ = exporter.cmd.Wait() // it ends by itself
	exporter.killed = true
	want := []process{{pid(importer), 20480*MiB + listedContext}}
	c.eventually("the importer alone", func(l look) bool {
		return l.Cards[0].Used == 20480*MiB+context && slices.Equal(l.Cards[0].Compute, want)
	})
	kill(t, importer)
	c.eventually("free memory", free)
}
