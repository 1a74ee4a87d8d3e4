package page

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"bookend/internal/slurm"
	"bookend/test/fakegpu"
	"bookend/test/must"
	"bookend/test/rig"
)

const nodeName = "gpu17"

// cards is how many GPUs the machine has.
const cards = 8

// machine is a node with fake GPUs, on which the real hooks run as slurmd runs them.
type machine struct {
	*testing.T
	dir     string
	world   *fakegpu.World
	running map[string]*fakegpu.Program
}

func newMachine(t *testing.T, name string) *machine {
	m := &machine{T: t, dir: filepath.Join(scratch, name), running: map[string]*fakegpu.Program{}}
	must.Do(t, os.Mkdir(m.dir, 0o755))
	options := []fakegpu.Option{fakegpu.GPUs(cards), fakegpu.With("teardown", "none")}
	for i := range cards {
		options = append(options, fakegpu.With(fmt.Sprintf("gpu%d.accounting_mode", i), "1"))
	}
	world, err := fakegpu.New(filepath.Join(m.dir, "world"), options...)
	must.Do(t, err)
	m.world = world
	t.Cleanup(func() {
		for _, p := range m.running {
			p.End()
		}
		must.Do(t, world.Close())
	})
	numbers, err := world.Slurm(filepath.Join(m.dir, "slurm"), nodeName)
	must.Do(t, err)
	must.Do(t, os.WriteFile(m.config(), fmt.Appendf(nil, `version: 1
mode: enforce
backend: %s
paths: {proc: /proc, run: %[2]s/run, var: %[2]s/var, log: %[2]s/log, sys: %[3]s, dev: %[4]s}
nvidia: {nvml_library: %[5]s, cuda_library: %[6]s, driver_proc: %[7]s}
deadlines:
  prolog: {total: 30s, driver: 20s, processes: 5s, records: 5s}
  epilog: {total: 40s, driver: 20s, processes: 5s, job_log: 5s, records: 5s}
settle:
  prolog: {max: 400ms, stable: 200ms}
  epilog: {max: 400ms, stable: 200ms}
slurm: {shards: "no", %[8]s}
log: {syslog: false}
`, filepath.Join(programs, "bookend-gpu"), m.dir, world.Sys(), world.Dev(), world.NVML(), world.CUDA(),
		world.DriverProc(), numbers), 0o644))
	return m
}

func (m *machine) config() string { return filepath.Join(m.dir, "bookend.yaml") }

// hook runs a hook of a job to its end. Its verdict is in the record.
func (m *machine) hook(program string, context slurm.Context, j job) {
	list := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(j.gpus)), ","), "[]")
	cmd := exec.Command(filepath.Join(programs, program))
	cmd.Dir = "/"
	cmd.Env = rig.NewJob(nodeName, int(j.id), j.uid, 0).On(list).With("SLURM_JOB_USER", j.user()).
		Environ(m.config(), context)
	if output, err := cmd.CombinedOutput(); err != nil && cmd.ProcessState == nil {
		m.Fatalf("%s of job %d: %v: %s", program, j.id, err, output)
	}
}

// start lets a user's program take memory on a card; name is for stop.
func (m *machine) start(name string, uid, card, mib int, more ...string) {
	args := append([]string{"alloc", "--gpu", strconv.Itoa(card), "--mib", strconv.Itoa(mib)}, more...)
	p, err := m.world.StartAs(&syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}, nil, args...)
	must.Do(m, err)
	m.running[name] = p
}

func (m *machine) stop(name string) {
	if p := m.running[name]; p != nil {
		p.End()
		delete(m.running, name)
	}
}

// kernel adds a line to the kernel's log.
func (m *machine) kernel(text string) {
	now, err := os.ReadFile(m.world.KernelLog())
	must.Do(m, err)
	seq := 100 + bytes.Count(now, []byte("\n"))
	must.Do(m, os.WriteFile(m.world.KernelLog(), fmt.Appendf(now, "3,%d,%d,-;%s\n", seq, seq*1_000_000, text), 0o600))
}
