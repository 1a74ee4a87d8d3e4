package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/node"
	"bookend/internal/protocol"
	"bookend/test/build"
	"bookend/test/fakegpu"
	"bookend/test/must"
)

var program string // bookend-gpu as it is shipped

func TestMain(m *testing.M) { build.Main(m, "bookend-gpu", &program) }

// world is one with these settings, as "key=value, key=value".
func world(t *testing.T, settings string, options ...fakegpu.Option) *fakegpu.World {
	t.Helper()
	for word := range strings.SplitSeq(settings, ", ") {
		if key, value, ok := strings.Cut(word, "="); ok {
			options = append(options, fakegpu.With(key, value))
		}
	}
	w := must.Have(fakegpu.New(t.TempDir(), options...))(t)
	t.Cleanup(func() { must.Do(t, w.Close()) })
	return w
}

func start(t *testing.T, w *fakegpu.World, args ...string) *fakegpu.Program {
	t.Helper()
	p := must.Have(w.Start(args...))(t)
	t.Cleanup(p.End)
	return p
}

// request asks for all cards of a library within a time no healthy answer needs.
func request(library string) protocol.Request {
	return protocol.Request{Op: protocol.Snapshot, All: true, DeadlineMillis: 120_000,
		Options: protocol.Options{optionNVML: library}}
}

func answerTo(req protocol.Request) node.Answer {
	return node.Ask(node.Params{Path: program}, req)
}

// looks asks and wants a complete answer without trouble.
func looks(t *testing.T, req protocol.Request) []gpu.Snapshot {
	t.Helper()
	a := answerTo(req)
	if len(a.Troubles) > 0 || !a.Complete || len(a.Snapshots) == 0 {
		t.Fatalf("got %d looks, complete %v, troubles %v, faults %v", len(a.Snapshots), a.Complete, a.Troubles,
			a.Faults)
	}
	return a.Snapshots
}

func look(t *testing.T, req protocol.Request) gpu.Snapshot {
	t.Helper()
	return looks(t, req)[0]
}

func reading(t *testing.T, s gpu.Snapshot, id string) gpu.Reading {
	t.Helper()
	r, ok := s.Reading(gpu.ID(id))
	if !ok {
		t.Fatalf("no reading of %s among %d; faults %v", id, len(s.Readings), s.Faults)
	}
	return r
}

// byHand is bookend-gpu started without package child, which ends it itself at its deadline.
type byHand struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout bytes.Buffer
	stderr bytes.Buffer
}

func startByHand(t *testing.T, request string, wrapper ...string) *byHand {
	t.Helper()
	argv := append(wrapper, program)
	p := &byHand{cmd: exec.Command(argv[0], argv[1:]...)}
	p.cmd.Env = []string{}
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	var err error
	p.stdin, err = p.cmd.StdinPipe()
	must.Do(t, err)
	must.Do(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	must.Have(io.WriteString(p.stdin, request))(t)
	return p
}

// wait returns how the program ended. It is not allowed to take for ever.
func (p *byHand) wait(t *testing.T) *os.ProcessState {
	t.Helper()
	stuck := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer stuck.Stop()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return p.cmd.ProcessState
}

func line(t *testing.T, req protocol.Request) string {
	t.Helper()
	l := must.Have(req.Line())(t)
	return string(l)
}

func askFor(w *fakegpu.World, devices ...gpu.Device) protocol.Request {
	r := request(w.NVML())
	r.All, r.Devices = false, devices
	return r
}

func cardOf(w *fakegpu.World, i int) gpu.Device {
	return gpu.Device{ID: gpu.ID(w.UUID(i)), BusID: gpu.BusID(w.BusID(i))}
}

func listed(r gpu.Reading) []int {
	pids := []int{}
	for _, p := range r.Processes {
		pids = append(pids, p.PID)
	}
	return pids
}
