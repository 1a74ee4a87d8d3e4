//go:build cgo

package fakegpu

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"bookend/test/must"
)

// The consumer is this test binary started again: an unmodified go-nvml program with an empty environment. A
// process can load one library only, so every case has a process of its own.
//
//	test  ── one line ──►  consumer: one look at every card
//	test  ◄── one look as JSON, one line ──  consumer
const consume = "consume"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == consume {
		lib := nvml.New(nvml.WithLibraryPath(os.Args[2]))
		lib.Init()
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			_ = json.NewEncoder(os.Stdout).Encode(lookAt(lib))
		}
		return
	}
	os.Exit(m.Run())
}

type card struct {
	Used         uint64
	Compute, MPS []process
	Took         time.Duration // the memory call
}

type process struct {
	PID   uint32
	Bytes uint64
}

type look struct{ Cards []card }

func lookAt(lib nvml.Interface) (l look) {
	n, _ := lib.DeviceGetCount()
	for i := range n {
		d, _ := lib.DeviceGetHandleByIndex(i)
		began := time.Now()
		m, _ := d.GetMemoryInfo_v2()
		c := card{Used: m.Used, Took: time.Since(began)}
		infos, _ := d.GetComputeRunningProcesses()
		c.Compute = processes(infos)
		infos, _ = d.GetMPSComputeRunningProcesses()
		c.MPS = processes(infos)
		l.Cards = append(l.Cards, c)
	}
	return l
}

func processes(infos []nvml.ProcessInfo) (all []process) {
	for _, i := range infos {
		all = append(all, process{i.Pid, i.UsedGpuMemory})
	}
	return all
}

// consumer is the test's end of a running consumer.
type consumer struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// attach starts a consumer of w.
func attach(t *testing.T, w *World) *consumer {
	t.Helper()
	c := &consumer{t: t, cmd: exec.Command("/proc/self/exe", consume, w.NVML())}
	c.cmd.Env = []string{}
	c.in = must.Have(c.cmd.StdinPipe())(t)
	c.out = bufio.NewReader(must.Have(c.cmd.StdoutPipe())(t))
	must.Do(t, c.cmd.Start())
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	return c
}

func (c *consumer) ask() { fmt.Fprintln(c.in, "look") }

func (c *consumer) look() (l look) {
	c.t.Helper()
	c.ask()
	line := must.Have(c.out.ReadBytes('\n'))(c.t)
	must.Do(c.t, json.Unmarshal(line, &l))
	return l
}

// is checks how much of a card is used, and who is listed.
func (c *consumer) is(gpu int, used uint64, listed ...process) {
	c.t.Helper()
	if l := c.look().Cards[gpu]; l.Used != used || !slices.Equal(l.Compute, listed) {
		c.t.Errorf("GPU %d: used %d, listed %v; want %d and %v", gpu, l.Used, l.Compute, used, listed)
	}
}

// eventually looks until ok says so.
func (c *consumer) eventually(what string, ok func(look) bool) {
	c.t.Helper()
	var l look
	await(c.t, what, func() bool {
		l = c.look()
		return ok(l)
	}, func() string { return fmt.Sprintf("%+v", l.Cards) })
}

// await polls for what no event tells.
func await(t *testing.T, what string, ok func() bool, state func() string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not come: %s", what, state())
		}
	}
}
