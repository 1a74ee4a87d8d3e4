package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"bookend/internal/backend"
	"bookend/internal/code"
	"bookend/internal/gpu"
	"bookend/internal/wire"
	"bookend/test/fakegpu"
)

// beside asks for these devices of a world and for a look at the others.
func beside(w *fakegpu.World, devices ...gpu.Device) wire.Request {
	req := askFor(w, devices...)
	req.Op, req.Neighbours, req.DeadlineMillis = wire.Watch, true, 8000
	req.Watch = gpu.WatchRule{Max: 3 * time.Second, Flat: time.Second, SlackBytes: 32 << 20}
	return req
}

func cardOf(w *fakegpu.World, i int) gpu.Device {
	return gpu.Device{ID: gpu.ID(w.UUID(i)), BusID: gpu.BusID(w.BusID(i))}
}

// ids are the devices of a look, in its order.
func ids(s *gpu.Snapshot) string {
	if s == nil {
		return "none"
	}
	var all []string
	for _, r := range s.Readings {
		all = append(all, string(r.Device.ID))
	}
	return strings.Join(all, " ")
}

func uuids(w *fakegpu.World, cards ...int) string {
	var all []string
	for _, i := range cards {
		all = append(all, w.UUID(i))
	}
	return strings.Join(all, " ")
}

// untroubled wants an answer without trouble, and its own looks to be of these devices alone.
func untroubled(t *testing.T, a backend.Answer, own ...gpu.Device) {
	t.Helper()
	if len(a.Troubles) > 0 || !a.Complete || len(a.Snapshots) == 0 || len(a.Faults) > 0 {
		t.Fatalf("got %d looks, complete %v, troubles %v, faults %v", len(a.Snapshots), a.Complete, a.Troubles,
			a.Faults)
	}
	for _, s := range a.Snapshots {
		if len(s.Readings) != len(own) {
			t.Errorf("got a look at %s", ids(&s))
		}
	}
}

func TestNeighbours(t *testing.T) {
	w := world(t)
	p := start(t, w, "alloc", "--gpu", "3", "--mib", "1000")
	tests := map[string]struct {
		own  []gpu.Device
		want string
	}{
		"of one card":     {[]gpu.Device{cardOf(w, 1)}, uuids(w, 0, 2, 3)},
		"by bus id alone": {[]gpu.Device{{BusID: gpu.BusID(w.BusID(0))}}, uuids(w, 1, 2, 3)},
		"by id alone":     {[]gpu.Device{{ID: gpu.ID(w.UUID(2))}}, uuids(w, 0, 1, 3)},
		"of three":        {[]gpu.Device{cardOf(w, 0), cardOf(w, 1), cardOf(w, 2)}, uuids(w, 3)},
		"of two":          {[]gpu.Device{cardOf(w, 2), cardOf(w, 0)}, uuids(w, 1, 3)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := answerTo(beside(w, tt.own...))
			untroubled(t, a, tt.own...)
			if !a.Watched || ids(a.Neighbours) != tt.want || len(a.Neighbours.Faults) > 0 ||
				a.Neighbours.At < a.Snapshots[0].At {
				t.Fatalf("got %v, %s, want %s", a.Watched, text(t, a.Neighbours), tt.want)
			}
			if got := listed(reading(t, *a.Neighbours, w.UUID(3))); len(got) != 1 || got[0] != p.PID {
				t.Errorf("got processes %v, want %d", got, p.PID)
			}
		})
	}
	t.Run("not asked for", func(t *testing.T) {
		req := beside(w, cardOf(w, 0))
		req.Neighbours = false
		if a := answerTo(req); a.Watched || a.Neighbours != nil {
			t.Errorf("got %v, %s", a.Watched, ids(a.Neighbours))
		}
	})
}

// A card of one's own that cannot be opened is no neighbour either.
func TestOwnCardThatFailsIsNoNeighbour(t *testing.T) {
	w := world(t, fakegpu.GPUs(2), fakegpu.With("on.nvmlDeviceGetHandleByPciBusId_v2.gpu0", "rc 999"))
	req := beside(w, cardOf(w, 0))
	req.Op = wire.Snapshot
	if a := answerTo(req); ids(a.Neighbours) != w.UUID(1) {
		t.Errorf("got %s", ids(a.Neighbours))
	}
}

func TestSiblingsAreNeighbours(t *testing.T) {
	w := cutWorld(t)
	own := instance(w, 3)
	tests := map[string]struct {
		own  gpu.Device
		want string
	}{
		"of an instance": {own,
			strings.Join([]string{w.UUID(0), w.UUID(1), w.InstanceUUID(1, 0), w.InstanceUUID(1, 2)}, " ")},
		"of an instance, by its place": {gpu.Device{ID: gpu.ID("MIG-" + w.UUID(1) + "/3/1")},
			strings.Join([]string{w.UUID(0), w.UUID(1), w.InstanceUUID(1, 0), w.InstanceUUID(1, 2)}, " ")},
		"of their card": {cardOf(w, 1),
			strings.Join([]string{w.UUID(0), w.InstanceUUID(1, 0), w.InstanceUUID(1, 2), w.InstanceUUID(1, 3)}, " ")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			req := beside(w, tt.own)
			req.Op = wire.Snapshot
			a := answerTo(req)
			untroubled(t, a, tt.own)
			if ids(a.Neighbours) != tt.want {
				t.Fatalf("got %s, want %s", ids(a.Neighbours), tt.want)
			}
			if card, is := a.Neighbours.Reading(gpu.ID(w.UUID(1))); is && card.ProcessesUnknown == "" {
				t.Errorf("the card's list is believed: %s", text(t, card))
			}
		})
	}
}

// One card that fails or does not answer costs its own reading and a bounded time, whatever it does.
func TestNeighbourThatFails(t *testing.T) {
	const silent = "index 2 within 1s"
	tests := map[string]struct {
		function, rule string
		code           gpu.FaultCode
		detail         string
	}{
		"hangs when opened": {"nvmlDeviceGetHandleByIndex_v2", "hang", gpu.FaultDriver, silent},
		"hangs when read":   {"nvmlDeviceGetMemoryInfo_v2", "hang", gpu.FaultDriver, silent},
		"lost":              {"any", "rc 15", gpu.FaultLost, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := world(t, fakegpu.With("on."+tt.function+".gpu2", tt.rule))
			a := answerTo(beside(w, cardOf(w, 1)))
			untroubled(t, a, cardOf(w, 1))
			if ids(a.Neighbours) != uuids(w, 0, 3) {
				t.Fatalf("got %s", ids(a.Neighbours))
			}
			if f := a.Neighbours.Faults; len(f) != 1 || f[0].Code != tt.code ||
				!strings.Contains(f[0].Detail, tt.detail) {
				t.Errorf("got faults %v, want %s", f, tt.code)
			}
		})
	}
}

// What ends the program elsewhere leaves the looks at the job's own cards as they were.
func TestTroubleAtANeighbour(t *testing.T) {
	tests := map[string]struct {
		key, rule string
		code      code.Code
		detail    string
	}{
		"crash":       {"on.any.gpu3", "crash", code.BackendCrash, "SIGSEGV"},
		"end":         {"on.any.gpu3", "exit 9", code.BackendCrash, "exit code 9"},
		"hang of all": {"on.nvmlDeviceGetCount_v2", "hang", code.Hang, ""},
		"hard hang":   {"on.nvmlDeviceGetCount_v2", "hang-hard", code.Hang, "killed after"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := world(t, fakegpu.With(tt.key, tt.rule))
			req := beside(w, cardOf(w, 0))
			req.DeadlineMillis = 1500
			a := answerTo(req)
			if !a.Watched || a.Neighbours != nil || len(a.Snapshots) != 1 || len(a.Snapshots[0].Readings) != 1 {
				t.Errorf("got watched %v, %d looks, neighbours %s", a.Watched, len(a.Snapshots), ids(a.Neighbours))
			}
			if len(a.Troubles) != 1 || a.Troubles[0].Code != tt.code || !a.Troubles[0].Elsewhere ||
				!strings.HasPrefix(a.Troubles[0].Detail, "looking at the node's other cards: ") ||
				!strings.Contains(a.Troubles[0].Detail, tt.detail) {
				t.Errorf("got troubles %+v", a.Troubles)
			}
		})
	}
}

func TestNoTimeForNeighbours(t *testing.T) {
	var out bytes.Buffer
	now := time.Hour
	s := session{ // without a library: nothing may be called
		req: wire.Request{Neighbours: true, DeadlineMillis: 8000}, out: wire.NewWriter(&out),
		boot: func() time.Duration { return now },
	}
	must(t, s.lookElsewhere(now+neighboursLeast-1))
	if got := out.String(); got != `{"bookend":1,"kind":"watched"}`+"\n" {
		t.Errorf("said %q", got)
	}
}
