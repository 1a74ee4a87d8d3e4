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
	args  string
	mib   uint64 // with a context
	as    *syscall.Credential
	nodes []string
	state string // of proc(5); with Z its nodes show under its threads alone
	mps   int
	used  uint64 // of the first card, where it has no context
}{
	"alloc":             {args: "alloc --mib 20480", mib: 20480, nodes: user},
	"innocent":          {args: "holdctl", nodes: []string{"nvidiactl"}},
	"memory only":       {args: "alloc --mib 1024 --no-context", used: (1024 + 3) * MiB, nodes: user},
	"stopped":           {args: "alloc --mib 10 --stop", mib: 10, nodes: user, state: "T"},
	"leaderless":        {args: "alloc --mib 10 --leader-exits", mib: 10, nodes: user, state: "Z"},
	"in the MPS list":   {args: "alloc --mib 10 --list mps", mib: 10, nodes: user, mps: 1},
	"another namespace": {args: "alloc --mib 64 --pidns", mib: 64, as: everybody, nodes: user},
	"orphan of a user":  {args: "alloc --mib 64 --orphan", mib: 64, as: everybody, nodes: user},
	"probe":             {args: "probe --mib 1024 --lock {dir}/lock", used: (1024 + 3) * MiB, nodes: user},
	"nearly full":       {args: "alloc --near-full 200", mib: 142956 - 527, nodes: user},
}

// What a program is on its card and in /proc while it lives; when it is killed nothing is left.
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
			if tt.mib > 0 {
				tt.used, listed = tt.mib*MiB+context, []process{{pid(p), tt.mib*MiB + listedContext}}
			}
			near := func(a, b uint64) bool { return max(a, b)-min(a, b) <= 3*MiB }
			l := c.look().Cards[0]
			same := slices.EqualFunc(l.Compute, listed, func(a, b process) bool {
				return a.PID == b.PID && near(a.Bytes, b.Bytes)
			})
			if !near(l.Used, tt.used) || !same || len(l.MPS) != tt.mps {
				t.Errorf("used %d MiB, listed %v and %v; want %d MiB, %v and %d of MPS", l.Used/MiB, l.Compute, l.MPS,
					tt.used/MiB, listed, tt.mps)
			}
			must.Do(t, p.Kill())
			c.eventually("free memory", free)
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
	nodes := openNodes(t, w, fmt.Sprintf("/proc/%d/fd", p.Holder))
	if n := strings.Count(strings.Join(nodes, " "), "nvidia0"); n != 20 || p.Holder == p.PID {
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
	got := slices.Compact(openNodes(t, w, fmt.Sprintf("/proc/%d/fd", holder.PID)))
	if !slices.Equal(got, []string{"nvidiactl"}) {
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
