package resolve

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// card makes the card at PCI bus n.
func card(n, minor int) gpu.Card {
	return gpu.Card{Device: gpu.Device{
		ID: id(n), BusID: bus(n), Minor: &minor, Name: "NVIDIA H200", Vendor: "nvidia",
	}}
}

func id(n int) gpu.ID     { return gpu.ID(fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", n)) }
func bus(n int) gpu.BusID { return gpu.BusID(fmt.Sprintf("0000:%02x:00.0", n)) }

// cards makes one card a minor, in PCI order.
func cards(minors ...int) []gpu.Card {
	var all []gpu.Card
	for n, minor := range minors {
		all = append(all, card(n, minor))
	}
	return all
}

// change returns the cards with one of them changed.
func change(all []gpu.Card, n int, edit func(*gpu.Card)) []gpu.Card {
	all = slices.Clone(all)
	edit(&all[n])
	return all
}

func excluded(c *gpu.Card)        { c.Excluded = true }
func excludedNoMinor(c *gpu.Card) { c.Excluded, c.Device.Minor = true, nil }
func uncached(c *gpu.Card)        { c.Device.ID = "" }
func noMinor(c *gpu.Card)         { c.Device.Minor = nil }
func unread(c *gpu.Card) {
	*c = gpu.Card{Device: gpu.Device{BusID: c.Device.BusID}, Unknown: "input/output error"}
}

// on names the cards of a result by their place on the PCI bus.
func on(r Result) []gpu.BusID {
	var places []gpu.BusID
	for _, a := range r.Devices {
		places = append(places, a.Device.BusID)
	}
	return places
}

func places(ns ...int) []gpu.BusID {
	var all []gpu.BusID
	for _, n := range ns {
		all = append(all, bus(n))
	}
	return all
}

func ids(ns ...int) []string {
	var all []string
	for _, n := range ns {
		all = append(all, string(id(n)))
	}
	return all
}

func TestDevices(t *testing.T) {
	const differ = "PCI order and minor order of this node's cards differ, Slurm's index may follow either: " + hint
	eight := cards(0, 1, 2, 3, 4, 5, 6, 7)
	crossed := cards(2, 0, 1, 3)

	for _, test := range []struct {
		name    string
		indexes []int
		visible []string
		cards   []gpu.Card
		order   config.GPUOrder
		gpuMap  map[int]string
		want    []gpu.BusID
		missing []int
		unknown string
	}{
		{name: "no GPUs", cards: eight, order: config.OrderAuto},
		{name: "one card", indexes: []int{0}, visible: []string{"0"}, cards: cards(0), order: config.OrderAuto, want: places(0)},
		{name: "all of four", indexes: []int{0, 1, 2, 3}, cards: cards(0, 1, 2, 3), order: config.OrderAuto, want: places(0, 1, 2, 3)},
		{name: "two of eight", indexes: []int{3, 6}, visible: []string{"3", "6"}, cards: eight, order: config.OrderAuto, want: places(3, 6)},
		{name: "inventory in no order", indexes: []int{0}, cards: []gpu.Card{card(9, 1), card(3, 0)}, order: config.OrderAuto, want: places(3)},
		{name: "20.11: visible only", visible: []string{"1"}, cards: eight, order: config.OrderAuto, want: places(1)},

		{name: "minors crossed, auto", indexes: []int{0}, cards: crossed, order: config.OrderAuto, unknown: differ},
		{name: "minors crossed, pci", indexes: []int{0, 2}, cards: crossed, order: config.OrderPCI, want: places(0, 2)},
		{name: "minors crossed, minor", indexes: []int{0, 2}, cards: crossed, order: config.OrderMinor, want: places(1, 0)},
		{name: "minors crossed, map by id", indexes: []int{0, 2}, cards: crossed, order: config.OrderMap, gpuMap: map[int]string{0: string(id(3)), 2: string(id(1))}, want: places(3, 1)},
		{name: "minors crossed, map by bus id", indexes: []int{2}, cards: crossed, order: config.OrderMap, gpuMap: map[int]string{2: "00000000:01:00.0"}, want: places(1)},
		{name: "minors crossed, ids win", indexes: []int{0, 1}, visible: ids(1, 2), cards: crossed, order: config.OrderAuto, want: places(1, 2)},
		{name: "ids win over a map", indexes: []int{0}, visible: ids(1), cards: crossed, order: config.OrderMap, gpuMap: map[int]string{0: string(id(3))}, want: places(1)},
		{name: "map leaves the index out", indexes: []int{1}, cards: eight, order: config.OrderMap, gpuMap: map[int]string{0: string(id(3))}, unknown: "nvidia.gpu_map has no GPU index 1"},
		{name: "map without minors", indexes: []int{0}, cards: change(eight, 3, unread), order: config.OrderMap, gpuMap: map[int]string{0: string(id(5))}, want: places(5)},
		{name: "map to a card that is gone", indexes: []int{0, 1}, cards: cards(0), order: config.OrderMap, gpuMap: map[int]string{0: string(id(0)), 1: string(id(1))}, want: places(0), missing: []int{1}},
		{name: "map to the same card twice", indexes: []int{0, 1}, cards: eight, order: config.OrderMap, gpuMap: map[int]string{0: string(id(3)), 1: string(bus(3))}, unknown: "two of the job's GPUs lead to the same device, " + string(id(3))},
		{name: "map to nonsense", indexes: []int{0}, cards: eight, order: config.OrderMap, gpuMap: map[int]string{0: "card0"}, unknown: `"card0" is not a device id that is known here`},

		// Slurm given only cards 2 and 3 counts them 0 and 1: no order can know that, a map or ids can.
		{name: "gres.conf names a subset, map", indexes: []int{1}, cards: cards(0, 1, 2, 3), order: config.OrderMap, gpuMap: map[int]string{0: string(id(2)), 1: string(id(3))}, want: places(3)},
		{name: "gres.conf names a subset, ids", indexes: []int{1}, visible: ids(3), cards: cards(0, 1, 2, 3), order: config.OrderAuto, want: places(3)},

		{name: "excluded card is not counted", indexes: []int{1, 2}, cards: change(cards(0, 1, 2, 3), 1, excluded), order: config.OrderAuto, want: places(2, 3)},
		{name: "excluded card without minor", indexes: []int{1, 2}, cards: change(cards(0, 1, 2, 3), 1, excludedNoMinor), order: config.OrderAuto, want: places(2, 3)},
		{name: "excluded card by id", indexes: []int{1}, visible: ids(1), cards: change(cards(0, 1, 2, 3), 1, excluded), order: config.OrderAuto, missing: []int{1}},
		{name: "index beyond the cards", indexes: []int{3, 4}, cards: cards(0, 1, 2, 3), order: config.OrderAuto, want: places(3), missing: []int{4}},
		{name: "no cards", indexes: []int{0, 1}, order: config.OrderPCI, missing: []int{0, 1}},
		{name: "last card fell off", indexes: []int{0, 7}, cards: eight[:7], order: config.OrderAuto, want: places(0), missing: []int{7}},
		{name: "middle card fell off", indexes: []int{5}, cards: slices.Delete(slices.Clone(eight), 3, 4), order: config.OrderPCI, unknown: "1 of 8 cards have gone since the driver was loaded, Slurm's index cannot be counted off: set nvidia.gpu_map"},
		{name: "middle card fell off, another excluded", indexes: []int{0}, cards: slices.Delete(change(eight, 7, excluded), 3, 4), order: config.OrderMinor, unknown: "1 of 8 cards have gone since the driver was loaded, Slurm's index cannot be counted off: set nvidia.gpu_map"},
		{name: "middle card fell off, ids", indexes: []int{3, 5}, visible: ids(3, 5), cards: slices.Delete(slices.Clone(eight), 3, 4), order: config.OrderAuto, want: places(5), missing: []int{3}},
		{name: "a card cannot be read", indexes: []int{0}, cards: change(cards(0, 1), 1, unread), order: config.OrderPCI, unknown: "card 0000:01:00.0 cannot be read: input/output error"},
		{name: "a minor is not known, auto", indexes: []int{0}, cards: change(cards(0, 1), 1, noMinor), order: config.OrderAuto, unknown: "the minor of card 0000:01:00.0 is not known: " + hint},
		{name: "a minor is not known, pci", indexes: []int{0}, cards: change(cards(0, 1), 1, noMinor), order: config.OrderPCI, want: places(0)},
		{name: "two cards of one minor", indexes: []int{0}, cards: cards(0, 0), order: config.OrderMinor, unknown: "cards 0000:00:00.0 and 0000:01:00.0 have the same minor"},
		{name: "no such order", indexes: []int{0}, cards: cards(0), order: "bios", unknown: `"bios" is not an order of GPUs`},

		{name: "id not cached yet", indexes: []int{1}, cards: change(cards(0, 1), 1, uncached), order: config.OrderAuto, want: places(1)},
		{name: "listed id is of a card not cached yet", indexes: []int{1}, visible: ids(1), cards: change(cards(0, 1), 1, uncached), order: config.OrderAuto, want: []gpu.BusID{""}},
		{name: "id of another node, index not told", visible: ids(7), cards: cards(0, 1), order: config.OrderAuto, unknown: `device "` + string(id(7)) + `" is not on this node`},

		{name: "lists of different length", indexes: []int{0, 1}, visible: []string{"0"}, cards: eight, order: config.OrderAuto, unknown: "the job has 2 GPU indexes but 1 visible devices"},
		{name: "more ids than indexes", indexes: []int{0}, visible: ids(0, 1), cards: eight, order: config.OrderAuto, unknown: "the job has 1 GPU indexes but 2 visible devices"},
		{name: "lists that differ", indexes: []int{0, 1}, visible: []string{"0", "2"}, cards: eight, order: config.OrderAuto, unknown: "the job has GPU index 1 but visible device 2"},
		{name: "an index twice", indexes: []int{2, 2}, cards: eight, order: config.OrderAuto, unknown: "two of the job's GPUs lead to the same device, " + string(id(2))},
		{name: "neither index nor id", indexes: []int{0}, visible: []string{"-1"}, cards: eight, order: config.OrderAuto, unknown: `"-1" is not a device id that is known here`},
		{name: "an index and an id", indexes: []int{0, 5}, visible: []string{"0", string(id(5))}, cards: eight, order: config.OrderAuto, want: places(0, 5)},
	} {
		t.Run(test.name, func(t *testing.T) {
			job := slurm.Job{GPUIndexes: test.indexes, Visible: test.visible}
			got := Devices(job, test.cards, test.order, test.gpuMap)
			if !slices.Equal(on(got), test.want) || !slices.Equal(got.Missing, test.missing) || got.Unknown != test.unknown {
				t.Errorf("Devices:\n got %v, missing %v, unknown %q\nwant %v, missing %v, unknown %q",
					on(got), got.Missing, got.Unknown, test.want, test.missing, test.unknown)
			}
		})
	}
}

func TestDevicesOfAListThatCannotBeRead(t *testing.T) {
	got := Devices(slurm.Job{GPUProblem: "SLURM_JOB_GPUS cannot be read"}, cards(0), config.OrderAuto, nil)
	if want := (Result{Unknown: "SLURM_JOB_GPUS cannot be read"}); !reflect.DeepEqual(got, want) {
		t.Errorf("Devices = %+v, want %+v", got, want)
	}
}

func TestDevicesGivesIndexAndDevice(t *testing.T) {
	two := cards(0, 1)
	for name, job := range map[string]slurm.Job{
		"by index": {GPUIndexes: []int{1}},
		"by id":    {GPUIndexes: []int{1}, Visible: ids(1)},
	} {
		got := Devices(job, two, config.OrderAuto, nil)
		if want := (Result{Devices: []Assigned{{Index: 1, Device: two[1].Device}}}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: Devices = %+v, want %+v", name, got, want)
		}
	}
	got := Devices(slurm.Job{Visible: ids(1)}, two, config.OrderAuto, nil)
	if want := (Result{Devices: []Assigned{{Index: -1, Device: two[1].Device}}}); !reflect.DeepEqual(got, want) {
		t.Errorf("by id, no index: Devices = %+v, want %+v", got, want)
	}
}

func TestInstances(t *testing.T) {
	const (
		newID   = "MIG-11111111-2222-3333-4444-555555555555"
		sibling = "MIG-11111111-2222-3333-4444-666666666666"
		moved   = "this node has MIG instances, which move Slurm's indexes: set nvidia.gpu_map"
	)
	oldID := "MIG-" + string(id(1)) + "/1/0"
	old := Assigned{8, gpu.Device{ID: gpu.ID(oldID), Parent: id(1), Name: "NVIDIA H200", Vendor: "nvidia"}}
	whole := Assigned{0, card(0, 0).Device}
	two := cards(0, 1)

	for _, test := range []struct {
		name   string
		job    slurm.Job
		order  config.GPUOrder
		gpuMap map[int]string
		want   Result
	}{
		{"card in the id", slurm.Job{GPUIndexes: []int{8}, Visible: []string{oldID}}, config.OrderAuto, nil, Result{Devices: []Assigned{old}}},
		{"two of one card", slurm.Job{GPUIndexes: []int{8, 9}, Visible: []string{oldID, oldID[:len(oldID)-3] + "2/0"}}, config.OrderAuto, nil, Result{Devices: []Assigned{
			old, {9, gpu.Device{ID: gpu.ID(oldID[:len(oldID)-3] + "2/0"), Parent: id(1), Name: "NVIDIA H200", Vendor: "nvidia"}},
		}}},
		{"card gone", slurm.Job{GPUIndexes: []int{8}, Visible: []string{"MIG-" + string(id(5)) + "/1/0"}}, config.OrderAuto, nil, Result{Missing: []int{8}}},
		{"card not told", slurm.Job{GPUIndexes: []int{8}, Visible: []string{newID}}, config.OrderAuto, nil, Result{
			Devices: []Assigned{{8, gpu.Device{ID: newID}}},
		}},
		{"two, card not told", slurm.Job{GPUIndexes: []int{8, 9}, Visible: []string{newID, sibling}}, config.OrderAuto, nil, Result{
			Devices: []Assigned{{8, gpu.Device{ID: newID}}, {9, gpu.Device{ID: sibling}}},
		}},
		{"index not told", slurm.Job{Visible: []string{newID}}, config.OrderAuto, nil, Result{
			Devices: []Assigned{{-1, gpu.Device{ID: newID}}},
		}},
		{"the same twice", slurm.Job{GPUIndexes: []int{8, 9}, Visible: []string{newID, newID}}, config.OrderAuto, nil, Result{
			Unknown: "two of the job's GPUs lead to the same device, " + newID,
		}},
		{"no place on the card", slurm.Job{GPUIndexes: []int{8}, Visible: []string{"MIG-" + string(id(1)) + "/x/0"}}, config.OrderAuto, nil, Result{
			Unknown: `"MIG-` + string(id(1)) + `/x/0" is not a device id that is known here`,
		}},
		{"half a place", slurm.Job{GPUIndexes: []int{8}, Visible: []string{"MIG-" + string(id(1)) + "/1"}}, config.OrderAuto, nil, Result{
			Unknown: `"MIG-` + string(id(1)) + `/1" is not a device id that is known here`,
		}},
		{"no card", slurm.Job{GPUIndexes: []int{8}, Visible: []string{"MIG-1/1/0"}}, config.OrderAuto, nil, Result{
			Unknown: `"MIG-1/1/0" is not a device id that is known here`,
		}},
		{"card not told, by map", slurm.Job{GPUIndexes: []int{8}}, config.OrderMap, map[int]string{8: newID}, Result{
			Devices: []Assigned{{8, gpu.Device{ID: newID}}},
		}},
		{"card not told, beside a card by index", slurm.Job{GPUIndexes: []int{0, 8}, Visible: []string{"0", newID}}, config.OrderAuto, nil, Result{
			Devices: []Assigned{{8, gpu.Device{ID: newID}}}, Unknown: moved,
		}},
		{"by map", slurm.Job{GPUIndexes: []int{8}}, config.OrderMap, map[int]string{8: oldID}, Result{Devices: []Assigned{old}}},
		{"beside a card by index", slurm.Job{GPUIndexes: []int{0, 8}, Visible: []string{"0", oldID}}, config.OrderAuto, nil, Result{
			Devices: []Assigned{old}, Unknown: moved,
		}},
		{"beside a card by map", slurm.Job{GPUIndexes: []int{0, 8}, Visible: []string{"0", oldID}}, config.OrderMap, map[int]string{0: string(id(0))}, Result{Devices: []Assigned{whole, old}}},
		{"beside a card by id", slurm.Job{GPUIndexes: []int{0, 8}, Visible: []string{string(id(0)), oldID}}, config.OrderAuto, nil, Result{Devices: []Assigned{whole, old}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Devices(test.job, two, test.order, test.gpuMap); !reflect.DeepEqual(got, test.want) {
				t.Errorf("Devices\n got %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestOrderOfLargeDomains(t *testing.T) {
	far, near := card(0, 1), card(1, 0)
	far.Device.BusID, near.Device.BusID = "10000:01:00.0", "2000:01:00.0"
	got := Devices(slurm.Job{GPUIndexes: []int{0}}, []gpu.Card{far, near}, config.OrderPCI, nil)
	if len(got.Devices) != 1 || got.Devices[0].Device.ID != near.Device.ID {
		t.Errorf("Devices = %+v, want domain 2000 before domain 10000", got)
	}
}

// FuzzDevices builds a node and a job from bytes and holds Devices to its promise: a device at most once, only for
// what was asked, and nothing silently left out.
func FuzzDevices(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3}, []byte{0, 3}, []byte{}, byte(0))
	f.Add([]byte{2, 0, 1, 0x83}, []byte{0, 1}, []byte{0x41, 0x42}, byte(1))
	f.Add([]byte{0, 0x41, 0xc2}, []byte{1, 1}, []byte{0x80, 1}, byte(2))
	f.Add([]byte{0, 1, 2}, []byte{0, 1, 2}, []byte{}, byte(3))
	f.Fuzz(func(t *testing.T, cardBytes, indexes, visible []byte, order byte) {
		node := fuzzCards(cardBytes)
		job := slurm.Job{Visible: fuzzVisible(visible)}
		for _, b := range indexes {
			job.GPUIndexes = append(job.GPUIndexes, int(b))
		}
		orders := []config.GPUOrder{config.OrderAuto, config.OrderPCI, config.OrderMinor, config.OrderMap}
		gpuMap := map[int]string{0: string(id(1)), 1: string(bus(0)), 2: string(bus(1)), 3: "x"}
		got := Devices(job, node, orders[int(order)%len(orders)], gpuMap)

		asked := max(len(indexes), len(visible))
		if n := len(got.Devices) + len(got.Missing); n > asked || n < asked && got.Unknown == "" {
			t.Fatalf("%d asked, but %+v", asked, got)
		}
		seen := map[string]bool{}
		for _, a := range got.Devices {
			if len(indexes) > 0 && !slices.Contains(job.GPUIndexes, a.Index) {
				t.Fatalf("index %d was not asked: %+v", a.Index, got)
			}
			for _, name := range []string{string(a.Device.ID), string(a.Device.BusID)} {
				if name != "" && seen[name] {
					t.Fatalf("%s twice: %+v", name, got)
				}
				seen[name] = true
			}
			if !slices.ContainsFunc(node, func(c gpu.Card) bool { return !c.Excluded && c.Device == a.Device }) &&
				!slices.Contains(job.Visible, string(a.Device.ID)) && a.Device.ID != id(1) {
				t.Fatalf("%+v is neither a usable card nor listed", a.Device)
			}
		}
	})
}

// fuzzCards makes a card of each byte: its minor, and in the two upper bits whether it is excluded or uncached.
func fuzzCards(bytes []byte) []gpu.Card {
	var all []gpu.Card
	for n, b := range bytes[:min(len(bytes), 16)] {
		c := card(n, int(b&0x3f))
		c.Excluded = b&0x80 != 0
		if b&0x40 != 0 {
			uncached(&c)
		}
		all = append(all, c)
	}
	return all
}

// fuzzVisible makes an element of each byte: an index, an id or a MIG instance's.
func fuzzVisible(bytes []byte) []string {
	var all []string
	for _, b := range bytes {
		element := fmt.Sprint(b)
		switch n := int(b & 0x3f); b >> 6 {
		case 1:
			element = string(id(n))
		case 2:
			element = "MIG-" + string(id(n)) + "/1/0"
		case 3:
			element = strings.Repeat("x", n)
		}
		all = append(all, element)
	}
	return all
}
