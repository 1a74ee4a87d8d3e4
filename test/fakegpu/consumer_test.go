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
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// The consumer is this test binary started again: an unmodified go-nvml program with an empty environment. A
// process can load one library only, so every case has a process of its own.
//
//	test  ── one line ──►  consumer: one look at every card
//	test  ◄── one look as JSON, one line ──  consumer; the first line is what Init said
const consume = "consume"

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == consume {
		runConsumer(os.Args[2], os.Args[3] == "guarded")
		return
	}
	os.Exit(m.Run())
}

type card struct {
	Handle, Memory, Memory1, List int // return codes; -1: not called
	UUID, Bus, Name               string
	Minor                         int
	Total, Reserved, Used, Free   uint64
	UsedV1, BAR1Used              uint64
	Compute, Graphics, MPS        []process
	Recovery                      int
	Took                          time.Duration // the memory calls
}

type process struct {
	PID   uint32
	Bytes uint64
}

type look struct {
	Init    int
	Text    string
	Version string
	Cards   []card
}

func runConsumer(path string, guarded bool) {
	lib := nvml.New(nvml.WithLibraryPath(path))
	out := json.NewEncoder(os.Stdout)
	rc := lib.Init()
	first := look{Init: int(rc)}
	if rc != nvml.ERROR_LIBRARY_NOT_FOUND {
		first.Text = rc.Error()
	}
	_ = out.Encode(first)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		_ = out.Encode(lookAt(lib, guarded))
	}
}

func lookAt(lib nvml.Interface, guarded bool) look {
	var l look
	l.Version, _ = lib.SystemGetDriverVersion()
	n, rc := lib.DeviceGetCount()
	l.Init = int(rc)
	for i := range n {
		c := card{Memory: -1, Memory1: -1, List: -1}
		d, rc := lib.DeviceGetHandleByIndex(i)
		if c.Handle = int(rc); rc == nvml.SUCCESS {
			// The handle a backend uses is the one by PCI address.
			pci, _ := d.GetPciInfo()
			c.Bus = cString(pci.BusId[:])
			d, rc = lib.DeviceGetHandleByPciBusId(strings.ToLower(c.Bus))
			if c.Handle = int(rc); rc == nvml.SUCCESS {
				c.read(lib, d, guarded)
			}
		}
		l.Cards = append(l.Cards, c)
	}
	return l
}

func (c *card) read(lib nvml.Interface, d nvml.Device, guarded bool) {
	c.UUID, _ = d.GetUUID()
	c.Name, _ = d.GetName()
	c.Minor, _ = d.GetMinorNumber()
	bar1, _ := d.GetBAR1MemoryInfo()
	c.BAR1Used = bar1.Bar1Used
	began := time.Now()
	if !guarded || lib.Extensions().LookupSymbol("nvmlDeviceGetMemoryInfo_v2") == nil {
		m, rc := d.GetMemoryInfo_v2()
		c.Memory, c.Total, c.Reserved, c.Used, c.Free = int(rc), m.Total, m.Reserved, m.Used, m.Free
	}
	m, rc := d.GetMemoryInfo()
	c.Took = time.Since(began)
	c.Memory1, c.UsedV1 = int(rc), m.Used
	infos, rc := d.GetComputeRunningProcesses()
	c.List, c.Compute = int(rc), processes(infos)
	infos, _ = d.GetGraphicsRunningProcesses()
	c.Graphics = processes(infos)
	infos, _ = d.GetMPSComputeRunningProcesses()
	c.MPS = processes(infos)
	field := []nvml.FieldValue{{FieldId: 230}}
	if d.GetFieldValues(field) == nvml.SUCCESS && field[0].NvmlReturn == 0 {
		c.Recovery = int(field[0].Value[0])
	}
}

func processes(infos []nvml.ProcessInfo) []process {
	var all []process
	for _, i := range infos {
		all = append(all, process{i.Pid, i.UsedGpuMemory})
	}
	return all
}

func cString(chars []int8) string {
	var s strings.Builder
	for _, c := range chars {
		if c == 0 {
			break
		}
		s.WriteByte(byte(c))
	}
	return s.String()
}

// consumer is the test's end of a running consumer.
type consumer struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr strings.Builder
}

func startConsumer(t *testing.T, library, mode string) *consumer {
	t.Helper()
	c := &consumer{t: t, cmd: exec.Command("/proc/self/exe", consume, library, mode)}
	c.cmd.Env = []string{}
	c.cmd.Stderr = &c.stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	return c
}

// attach starts a consumer of w and checks that its Init went well.
func attach(t *testing.T, w *World) *consumer {
	t.Helper()
	c := startConsumer(t, w.NVML(), "guarded")
	if first, err := c.read(); err != nil || first.Init != 0 {
		t.Fatalf("init: %+v, %v", first, err)
	}
	return c
}

func (c *consumer) read() (look, error) {
	var l look
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return l, fmt.Errorf("consumer ended: %w", err)
	}
	return l, json.Unmarshal(line, &l)
}

func (c *consumer) look() look {
	c.t.Helper()
	c.ask()
	l, err := c.read()
	if err != nil {
		c.t.Fatal(err)
	}
	return l
}

func (c *consumer) ask() { fmt.Fprintln(c.in, "look") }

// exit waits for the consumer's end.
func (c *consumer) exit() (code int, stderr string) {
	_ = c.cmd.Wait()
	return c.cmd.ProcessState.ExitCode(), c.stderr.String()
}

// is checks how much of a card is used, and who is listed.
func (c *consumer) is(gpu int, used uint64, listed ...process) {
	c.t.Helper()
	if l := c.look().Cards[gpu]; l.Used != used || !slices.Equal(l.Compute, listed) {
		c.t.Errorf("card %d: used %d, listed %v; want %d and %v", gpu, l.Used, l.Compute, used, listed)
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
