package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/fakegpu"
)

const nodeName = "gpu17"

// cards is how many GPUs the machine has.
const cards = 8

// machine is a node with fake GPUs, on which the real hooks run as slurmd runs them.
type machine struct {
	dir, programs string
	world         *fakegpu.World
	numbers       string // keys of the slurm section
	running       map[string]*fakegpu.Program
}

func newMachine(dir, programs string) (*machine, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	options := []fakegpu.Option{fakegpu.GPUs(cards), fakegpu.With("teardown", "none")}
	for i := range cards {
		options = append(options, fakegpu.With(fmt.Sprintf("gpu%d.accounting_mode", i), "1"))
	}
	world, err := fakegpu.New(filepath.Join(dir, "world"), options...)
	if err != nil {
		return nil, err
	}
	numbers, err := world.Slurm(filepath.Join(dir, "slurm"), nodeName)
	if err != nil {
		return nil, err
	}
	m := &machine{dir: dir, programs: programs, world: world, numbers: numbers, running: map[string]*fakegpu.Program{}}
	return m, os.WriteFile(m.config(), []byte(m.configuration()), 0o644)
}

func (m *machine) config() string { return filepath.Join(m.dir, "bookend.yaml") }

func (m *machine) configuration() string {
	in := func(name string) string { return filepath.Join(m.dir, name) }
	return fmt.Sprintf(`version: 1
mode: enforce
backend: %s
paths: {proc: /proc, run: %s, var: %s, log: %s, sys: %s, dev: %s}
nvidia: {nvml_library: %s, cuda_library: %s, driver_proc: %s}
deadlines:
  prolog: {total: 30s, driver: 20s, scan: 5s, outputs: 5s}
  epilog: {total: 40s, driver: 20s, scan: 5s, append: 5s, outputs: 5s}
settle:
  prolog: {max: 400ms, flat: 200ms}
  epilog: {max: 400ms, flat: 200ms}
slurm: {shards: "no", %s}
log: {syslog: false}
`, filepath.Join(m.programs, "bookend-gpu"), in("run"), in("var"), in("log"), m.world.Sys(), m.world.Dev(),
		m.world.NVML(), m.world.CUDA(), m.world.DriverProc(), m.numbers)
}

func (m *machine) close() {
	for _, p := range m.running {
		p.End()
	}
	_ = m.world.Close()
}

// hook runs a hook of a job to its end. Its verdict is in the record.
func (m *machine) hook(program string, context slurm.Context, j job) error {
	list := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(j.gpus)), ","), "[]")
	id, uid := strconv.Itoa(int(j.id)), strconv.Itoa(j.uid)
	cmd := exec.Command(filepath.Join(m.programs, program))
	cmd.Dir = "/"
	cmd.Env = []string{
		"BOOKEND_CONFIG=" + m.config(), "SLURM_SCRIPT_CONTEXT=" + string(context), "SLURMD_NODENAME=" +
			nodeName, "SLURM_CLUSTER_NAME=lab",
		"SLURM_CONF=/etc/slurm/slurm.conf", "SLURM_JOB_ID=" + id, "SLURM_JOBID=" + id, "SLURM_JOB_UID=" +
			uid, "SLURM_UID=" + uid, "SLURM_JOB_GID=" + uid,
		"SLURM_JOB_USER=" + j.user(), "SLURM_NODELIST=" +
			nodeName, "SLURM_JOB_PARTITION=main", "SLURM_JOB_WORK_DIR=/home/" + j.user(),
		"SLURM_JOB_GPUS=" + list, "CUDA_VISIBLE_DEVICES=" + list, "GPU_DEVICE_ORDINAL=" +
			list, "SLURM_JOB_RESTART_COUNT=0",
	}
	if context == slurm.Epilog {
		cmd.Env = append(cmd.Env, "SLURM_JOB_EXIT_CODE=0", "SLURM_JOB_EXIT_CODE2=0:0", "SLURM_JOB_DERIVED_EC=0")
	}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		return fmt.Errorf("%s of job %d: %w: %s", program, j.id, err, output.String())
	}
	return nil
}

// start lets a user's program take memory on a card; name is for stop.
func (m *machine) start(name string, uid, card, mib int, more ...string) error {
	args := append([]string{"alloc", "--gpu", strconv.Itoa(card), "--mib", strconv.Itoa(mib)}, more...)
	p, err := m.world.StartAs(&syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}, nil, args...)
	if err != nil {
		return err
	}
	m.running[name] = p
	return nil
}

func (m *machine) stop(name string) {
	if p := m.running[name]; p != nil {
		p.End()
		delete(m.running, name)
	}
}

// kernel adds a line to the kernel's log.
func (m *machine) kernel(text string) error {
	now, err := os.ReadFile(m.world.KernelLog())
	if err != nil {
		return err
	}
	seq := 100 + bytes.Count(now, []byte("\n"))
	return os.WriteFile(m.world.KernelLog(), fmt.Appendf(now, "3,%d,%d,-;%s\n", seq, seq*1_000_000, text), 0o600)
}

// runs are all runs on record.
func (m *machine) runs() ([]ledger.Run, error) {
	all, damage, err := state.Copied(m.dir)
	if err == nil && len(damage) > 0 {
		err = damage[0]
	}
	return all[nodeName], err
}
