package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/protocol"
	"bookend/test/gpu/runrecord"
)

const gap = 64 * mib

// slowCUDA is a library in front of the driver's that gives memory back 150 ms later.
const slowCUDA = "libslowcuda.so"

// planter is a backend that flips a bit of the memory that it tests.
const planter = "bookend-gpu-plant"

// probeRequest asks the backend for a test allocation on some cards, as a hook would; slow, for one that holds the
// memory for long enough to be met.
func (l *lane) probeRequest(cards []card, slow bool, known ...int) []byte {
	r := l.requestOf(protocol.Probe, cards)
	empty := filepath.Join(l.site.Dir, "empty")
	try(os.MkdirAll(empty, 0o755))
	if slow {
		r.Options["cuda_library"] = l.site.Program(slowCUDA)
	}
	r.Probe = gpu.ProbeRule{Gap: gap, Known: known, Locks: map[gpu.ID]string{}, LockWait: time.Second, Empty: empty}
	if l.fake > 0 {
		r.Probe.LockWait = patience
	}
	for _, d := range r.Devices {
		r.Probe.Locks[d.ID] = l.store().Turns.ProbeLock(d.ID)
	}
	return must(r.Line())
}

func (l *lane) requestOf(op protocol.Op, cards []card) protocol.Request {
	r := protocol.Request{Bookend: protocol.Version, Op: op, DeadlineMillis: 5000, Options: protocol.Options{}}
	if w := l.site.World(l.node); w != nil { // and a machine that may be busy
		r.DeadlineMillis = 2 * patience.Milliseconds()
		r.Options = protocol.Options{"nvml_library": w.NVML(), "cuda_library": w.CUDA()}
	}
	for _, c := range cards {
		r.Devices = append(r.Devices, gpu.Device{ID: gpu.ID(c.uuid), BusID: must(gpu.ParseBusID(c.bus))})
	}
	return r
}

// askBackend starts the backend with a request.
func (l *lane) askBackend(request []byte, env ...string) *process {
	return start([]string{l.site.Program("bookend-gpu")}, env, request)
}

func probesIn(out []byte) (all []gpu.Probe) {
	for _, r := range must(protocol.DecodeReplies(out)) {
		switch {
		case r.Kind == protocol.KindProbe:
			all = append(all, *r.Probe)
		case r.Kind == protocol.KindFault:
			panic(fmt.Errorf("the driver said %+v", *r.Fault))
		}
	}
	return all
}

// deadListed is for how long the driver may go on listing a process that was killed: 110 to 150 ms were measured.
// Nobody tests a card with an unknown process on it.
const deadListed = 500 * time.Millisecond

// test asks the backend for a test allocation on some cards and writes down what it said.
func (r *run) test(what string, cards []card, known ...int) []gpu.Probe {
	time.Sleep(deadListed)
	tests := r.tests(what, r.askBackend(r.probeRequest(cards, false, known...)))
	r.check("GPUs that the backend answered for: "+what, len(cards), len(tests))
	return tests
}

// tests waits for a backend's answer and writes it down.
func (r *run) tests(what string, backend *process) []gpu.Probe {
	out, _ := backend.end()
	all := probesIn(out)
	for _, p := range all {
		r.rec.Tests = append(r.rec.Tests, runrecord.Test{What: what, Probe: raw(p)})
	}
	return all
}

// watcher says when a card's memory is taken and when it is free again.
type watcher struct {
	cmd   *exec.Cmd
	lines chan string
	taken bool // by the last line that was read
}

// watch starts a watcher on a card that is idle, for half of its memory.
func (r *run) watch(uuid string) *watcher {
	w, _ := r.follow("empty", "watch", uuid, "--mib", fmt.Sprint(r.total()/2))
	return w
}

// follow starts cudajob as a watcher and waits for its first line, which begins with a word.
func (r *run) follow(word string, args ...string) (*watcher, map[string]string) {
	w := &watcher{cmd: exec.Command(r.cudaJob(), args...), lines: make(chan string, 1024)}
	w.cmd.Env, w.cmd.Stderr = append(slices.Clone(r.env), r.daemon.mark), os.Stderr
	out := must(w.cmd.StdoutPipe())
	try(w.cmd.Start())
	go func() {
		defer close(w.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			w.lines <- s.Text()
		}
	}()
	return w, must(w.await(word))
}

// await returns the next line that begins with a word.
func (w *watcher) await(word string) (map[string]string, error) {
	late := time.After(patience)
	for {
		select {
		case line, open := <-w.lines:
			if !open {
				return nil, errors.New("who watches the GPU has ended")
			}
			w.taken = strings.HasPrefix(line, "taken ")
			if strings.HasPrefix(line, word+" ") {
				return parseReady(line), nil
			}
		case <-late:
			return nil, fmt.Errorf("the GPU's memory was not %s within %v", word, patience)
		}
	}
}

// settle forgets what was said so far, once the card is empty again.
func (w *watcher) settle() error {
	for len(w.lines) > 0 {
		w.taken = strings.HasPrefix(<-w.lines, "taken ")
	}
	if !w.taken {
		return nil
	}
	_, err := w.await("empty")
	return err
}

func (w *watcher) end() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait() // says that it was killed
}
