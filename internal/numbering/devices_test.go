package numbering

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
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

// listed is what slurmd -G says of GPUs with these minors, in its order.
func listed(minors ...int) List {
	l := List{Source: BySlurmd}
	for _, minor := range minors {
		l.GPUs = append(l.GPUs, slurmconf.GPU{fmt.Sprintf("/dev/nvidia%d", minor)})
	}
	return l
}

// counted is one untyped run of GPUs in the configuration.
func counted(detect string, minors ...int) List {
	l := listed(minors...)
	l.Source, l.Detect = ByCount, detect
	if detect != "" {
		l.Count, l.GPUs = len(minors), nil
	}
	return l
}

// mapped is a configuration with the admin's own map; without one the default.
func mapped(gpuMap map[int]string) config.NVIDIA {
	if gpuMap == nil {
		return config.NVIDIA{GPUOrder: config.OrderAuto}
	}
	return config.NVIDIA{GPUOrder: config.OrderMap, GPUMap: gpuMap}
}

func TestDevices(t *testing.T) {
	all := listed(0, 1, 2, 3, 4, 5, 6, 7)
	eight := cards(0, 1, 2, 3, 4, 5, 6, 7)
	crossed := cards(2, 0, 1, 3)

	for _, test := range []struct {
		name    string
		indexes []int
		visible []string
		cards   []gpu.Card
		list    List // of eight GPUs where it is empty
		gpuMap  map[int]string
		want    []gpu.BusID
		missing []int
		unknown string
	}{
		{name: "no GPUs", cards: eight},
		{name: "one card", indexes: []int{0}, visible: []string{"0"}, cards: cards(0), want: places(0)},
		{name: "all of four", indexes: []int{0, 1, 2, 3}, cards: cards(0, 1, 2, 3), want: places(0, 1, 2, 3)},
		{name: "two of eight", indexes: []int{3, 6}, visible: []string{"3", "6"}, cards: eight, want: places(3, 6)},
		{name: "inventory in no order", indexes: []int{0}, cards: []gpu.Card{card(9, 1), card(3, 0)}, want: places(3)},

		{name: "minors crossed", indexes: []int{0, 2}, cards: crossed, want: places(1, 0)},
		{name: "minors crossed, AutoDetect=nvml", indexes: []int{0, 2}, cards: crossed, list: counted("nvml", 0, 1, 2, 3), want: places(0, 2)},
		{name: "minors crossed, AutoDetect=nvidia", indexes: []int{0, 2}, cards: crossed, list: counted("nvidia", 0, 1, 2, 3), want: places(1, 0)},
		{name: "typed in reverse order", indexes: []int{2}, cards: cards(0, 1, 2, 3), list: listed(2, 3, 0, 1), want: places(0)},
		{name: "lines shuffled", indexes: []int{0, 3}, cards: cards(0, 1, 2, 3), list: listed(3, 0, 1, 2), want: places(3, 2)},
		{name: "one died and left gres.conf", indexes: []int{1, 2}, cards: cards(0, 2, 3), list: listed(0, 2, 3), want: places(1, 2)},
		{name: "one died and is still in gres.conf", indexes: []int{1, 2}, cards: cards(0, 2, 3), list: listed(0, 1, 2, 3), want: places(1), missing: []int{1}},
		{name: "slurmd not asked", indexes: []int{0}, cards: eight, list: Unclear("it did not answer"), unknown: "the meaning of Slurm's GPU numbers is not known: it did not answer: " + hint},
		{name: "AMD", indexes: []int{1}, cards: change(cards(128, 129), 1, func(c *gpu.Card) { c.Device.Vendor = "amd" }),
			list: List{Source: BySlurmd, GPUs: []slurmconf.GPU{{"/dev/dri/renderD128"}, {"/dev/dri/renderD129"}}}, want: places(1)},
		{name: "a vendor's number is not another's", indexes: []int{0}, cards: cards(128),
			list: List{Source: BySlurmd, GPUs: []slurmconf.GPU{{"/dev/dri/renderD128"}}}, missing: []int{0}},
		{name: "a file of no GPU", indexes: []int{0}, cards: eight, list: List{Source: BySlurmd, GPUs: []slurmconf.GPU{{"/dev/tty0"}}},
			unknown: `gres.conf has "/dev/tty0", which is not the device file of a whole GPU: ` + hint},
		{name: "part of a GPU", indexes: []int{1}, cards: eight, list: List{Source: BySlurmd, GPUs: []slurmconf.GPU{{"/dev/nvidia0"}, {"/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap21"}}},
			unknown: `part of a GPU is given out as ["/dev/nvidia1" "/dev/nvidia-caps/nvidia-cap21"]: which part is not known without the UUID that AutoDetect=nvml adds`},
		{name: "counted", indexes: []int{1}, cards: cards(0, 1), list: counted("", 0, 1), want: places(1)},
		{name: "counted, but the driver has more", indexes: []int{1}, cards: cards(0, 1, 2), list: counted("", 0, 1), unknown: "the driver has 3 GPUs and Slurm gives out 2: " + hint},
		{name: "counted by the driver, which has more", indexes: []int{1}, cards: cards(0, 1, 2), list: counted("nvml", 0, 1), unknown: "the driver has 3 GPUs and Slurm gives out 2: " + hint},
		{name: "counted, and the middle one fell off", indexes: []int{2}, cards: slices.Delete(cards(0, 1, 2, 3), 1, 2), list: counted("nvml", 0, 1, 2),
			unknown: "1 of 4 cards have gone since the driver was loaded, Slurm's index cannot be counted off: set nvidia.gpu_map"},
		{name: "counted, and one cannot be read", indexes: []int{0}, cards: change(cards(0, 1), 1, unread), list: counted("", 0, 1), unknown: "card 0000:01:00.0 cannot be read: input/output error"},
		{name: "counted by minor, one not known", indexes: []int{0}, cards: change(cards(0, 1), 1, noMinor), list: counted("nvidia", 0, 1), unknown: "the minor of card 0000:01:00.0 is not known: " + hint},
		{name: "counted, two of one minor", indexes: []int{0}, cards: cards(0, 0), list: counted("nvidia", 0, 1), unknown: "cards 0000:00:00.0 and 0000:01:00.0 have the same minor"},
		{name: "minors crossed, map by id", indexes: []int{0, 2}, cards: crossed, gpuMap: map[int]string{0: string(id(3)), 2: string(id(1))}, want: places(3, 1)},
		{name: "minors crossed, map by bus id", indexes: []int{2}, cards: crossed, gpuMap: map[int]string{2: "00000000:01:00.0"}, want: places(1)},
		{name: "minors crossed, ids win", indexes: []int{0, 1}, visible: ids(1, 2), cards: crossed, want: places(1, 2)},
		{name: "ids win over a map", indexes: []int{0}, visible: ids(1), cards: crossed, gpuMap: map[int]string{0: string(id(3))}, want: places(1)},
		{name: "map leaves the index out", indexes: []int{1}, cards: eight, gpuMap: map[int]string{0: string(id(3))}, unknown: "nvidia.gpu_map has no GPU index 1"},
		{name: "map without minors", indexes: []int{0}, cards: change(eight, 3, unread), gpuMap: map[int]string{0: string(id(5))}, want: places(5)},
		{name: "map to a card that is gone", indexes: []int{0, 1}, cards: cards(0), gpuMap: map[int]string{0: string(id(0)), 1: string(id(1))}, want: places(0), missing: []int{1}},
		{name: "map to the same card twice", indexes: []int{0, 1}, cards: eight, gpuMap: map[int]string{0: string(id(3)), 1: string(bus(3))}, unknown: "two of the job's GPUs lead to the same device, " + string(id(3))},
		{name: "map to nonsense", indexes: []int{0}, cards: eight, gpuMap: map[int]string{0: "card0"}, unknown: `"card0" is not a device id that is known here`},

		// Slurm given only cards 2 and 3 counts them 0 and 1: no order can know that, a map or ids can.
		{name: "gres.conf names a subset, map", indexes: []int{1}, cards: cards(0, 1, 2, 3), gpuMap: map[int]string{0: string(id(2)), 1: string(id(3))}, want: places(3)},
		{name: "gres.conf names a subset, ids", indexes: []int{1}, visible: ids(3), cards: cards(0, 1, 2, 3), want: places(3)},

		{name: "excluded card is not counted", indexes: []int{1, 2}, cards: change(cards(0, 1, 2, 3), 1, excluded), list: listed(0, 2, 3), want: places(2, 3)},
		{name: "excluded card without minor", indexes: []int{1, 2}, cards: change(cards(0, 1, 2, 3), 1, excludedNoMinor), list: counted("nvml", 0, 2, 3), want: places(2, 3)},
		{name: "excluded card that Slurm has", indexes: []int{1}, cards: change(cards(0, 1, 2, 3), 1, excludedNoMinor), missing: []int{1}},
		{name: "excluded card by id", indexes: []int{1}, visible: ids(1), cards: change(cards(0, 1, 2, 3), 1, excluded), missing: []int{1}},
		{name: "index beyond the list", indexes: []int{3, 4}, cards: cards(0, 1, 2, 3), list: listed(0, 1, 2, 3), want: places(3), unknown: "index 4 is not one of the 4 GPUs that slurmd lists"},
		{name: "no cards", indexes: []int{0, 1}, missing: []int{0, 1}},
		{name: "last card fell off", indexes: []int{0, 7}, cards: eight[:7], want: places(0), missing: []int{7}},
		{name: "another cannot be read", indexes: []int{0}, cards: change(cards(0, 1), 1, unread), want: places(0)},
		{name: "its card cannot be read", indexes: []int{1}, cards: change(cards(0, 1), 1, unread), unknown: "which GPU nvidia1 is not known: the minor of card 0000:01:00.0 could not be read"},
		{name: "middle card fell off, ids", indexes: []int{3, 5}, visible: ids(3, 5), cards: slices.Delete(slices.Clone(eight), 3, 4), want: places(5), missing: []int{3}},
		{name: "id not cached yet", indexes: []int{1}, cards: change(cards(0, 1), 1, uncached), want: places(1)},
		{name: "listed id is of a card not cached yet", indexes: []int{1}, visible: ids(1), cards: change(cards(0, 1), 1, uncached), want: []gpu.BusID{""}},

		{name: "lists of different length", indexes: []int{0, 1}, visible: []string{"0"}, cards: eight, unknown: "the job has 2 GPU indexes but 1 visible devices"},
		{name: "more ids than indexes", indexes: []int{0}, visible: ids(0, 1), cards: eight, unknown: "the job has 1 GPU indexes but 2 visible devices"},
		{name: "lists that differ", indexes: []int{0, 1}, visible: []string{"0", "2"}, cards: eight, unknown: "the job has GPU index 1 but visible device 2"},
		{name: "an index twice", indexes: []int{2, 2}, cards: eight, unknown: "two of the job's GPUs lead to the same device, " + string(id(2))},
		{name: "neither index nor id", indexes: []int{0}, visible: []string{"-1"}, cards: eight, unknown: `"-1" is not a device id that is known here`},
		{name: "an index and an id", indexes: []int{0, 5}, visible: []string{"0", string(id(5))}, cards: eight, want: places(0, 5)},
	} {
		t.Run(test.name, func(t *testing.T) {
			job := slurm.Job{GPUIndexes: test.indexes, Visible: test.visible}
			if test.list.Source == "" {
				test.list = all
			}
			got := Devices(job, test.cards, mapped(test.gpuMap), test.list)
			if !slices.Equal(on(got), test.want) || !slices.Equal(got.Missing, test.missing) || got.Unknown != test.unknown {
				t.Errorf("Devices:\n got %v, missing %v, unknown %q\nwant %v, missing %v, unknown %q",
					on(got), got.Missing, got.Unknown, test.want, test.missing, test.unknown)
			}
		})
	}
}

func TestDevicesOfAListThatCannotBeRead(t *testing.T) {
	got := Devices(slurm.Job{GPUProblem: "SLURM_JOB_GPUS cannot be read"}, cards(0), mapped(nil), listed(0))
	if want := (Result{Unknown: "SLURM_JOB_GPUS cannot be read", Source: Ambiguous}); !reflect.DeepEqual(got, want) {
		t.Errorf("Devices = %+v, want %+v", got, want)
	}
}

func TestDevicesGivesIndexAndDevice(t *testing.T) {
	two := cards(0, 1)
	for name, tt := range map[string]struct {
		job    slurm.Job
		source Source
	}{
		"by index": {slurm.Job{GPUIndexes: []int{1}}, BySlurmd},
		"by id":    {slurm.Job{GPUIndexes: []int{1}, Visible: ids(1)}, ByUUID},
	} {
		got := Devices(tt.job, two, mapped(nil), listed(0, 1))
		if want := (Result{Devices: []Assigned{{Index: 1, Device: two[1].Device}}, Source: tt.source}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: Devices = %+v, want %+v", name, got, want)
		}
	}
	got := Devices(slurm.Job{Visible: ids(1)}, two, mapped(nil), List{})
	if got.Devices != nil || got.Unknown == "" {
		t.Errorf("by id, no index: Devices = %+v, want unknown", got)
	}
}

func TestInstances(t *testing.T) {
	const (
		newID   = "MIG-11111111-2222-3333-4444-555555555555"
		sibling = "MIG-11111111-2222-3333-4444-666666666666"
	)
	oldID := "MIG-" + string(id(1)) + "/1/0"
	old := Assigned{8, gpu.Device{ID: gpu.ID(oldID), Parent: id(1), Name: "NVIDIA H200", Vendor: "nvidia"}}
	whole := Assigned{0, card(0, 0).Device}
	two := cards(0, 1)

	for _, test := range []struct {
		name   string
		job    slurm.Job
		gpuMap map[int]string
		want   Result
	}{
		{"card in the id", slurm.Job{GPUIndexes: []int{8}, Visible: []string{oldID}}, nil, Result{Devices: []Assigned{old}, Source: ByUUID}},
		{"two of one card", slurm.Job{GPUIndexes: []int{8, 9}, Visible: []string{oldID, oldID[:len(oldID)-3] + "2/0"}}, nil, Result{Source: ByUUID, Devices: []Assigned{
			old, {9, gpu.Device{ID: gpu.ID(oldID[:len(oldID)-3] + "2/0"), Parent: id(1), Name: "NVIDIA H200", Vendor: "nvidia"}},
		}}},
		{"card gone", slurm.Job{GPUIndexes: []int{8}, Visible: []string{"MIG-" + string(id(5)) + "/1/0"}}, nil, Result{Missing: []int{8}, Source: ByUUID}},
		{"card not told", slurm.Job{GPUIndexes: []int{8}, Visible: []string{newID}}, nil, Result{
			Devices: []Assigned{{8, gpu.Device{ID: newID}}}, Source: ByUUID,
		}},
		{"two, card not told", slurm.Job{GPUIndexes: []int{8, 9}, Visible: []string{newID, sibling}}, nil, Result{
			Devices: []Assigned{{8, gpu.Device{ID: newID}}, {9, gpu.Device{ID: sibling}}}, Source: ByUUID,
		}},
		{"the same twice", slurm.Job{GPUIndexes: []int{8, 9}, Visible: []string{newID, newID}}, nil, Result{
			Unknown: "two of the job's GPUs lead to the same device, " + newID, Source: Ambiguous,
		}},
		{"no place on the card", slurm.Job{GPUIndexes: []int{8}, Visible: []string{"MIG-" + string(id(1)) + "/x/0"}}, nil, Result{
			Unknown: `"MIG-` + string(id(1)) + `/x/0" is not a device id that is known here`, Source: Ambiguous,
		}},
		{"half a place", slurm.Job{GPUIndexes: []int{8}, Visible: []string{"MIG-" + string(id(1)) + "/1"}}, nil, Result{
			Unknown: `"MIG-` + string(id(1)) + `/1" is not a device id that is known here`, Source: Ambiguous,
		}},
		{"no card", slurm.Job{GPUIndexes: []int{8}, Visible: []string{"MIG-1/1/0"}}, nil, Result{
			Unknown: `"MIG-1/1/0" is not a device id that is known here`, Source: Ambiguous,
		}},
		{"card not told, by map", slurm.Job{GPUIndexes: []int{8}}, map[int]string{8: newID}, Result{
			Devices: []Assigned{{8, gpu.Device{ID: newID}}}, Source: ByMap,
		}},
		{"card not told, beside a card by index", slurm.Job{GPUIndexes: []int{0, 8}, Visible: []string{"0", newID}}, nil, Result{
			Devices: []Assigned{whole, {8, gpu.Device{ID: newID}}}, Source: BySlurmd,
		}},
		{"by map", slurm.Job{GPUIndexes: []int{8}}, map[int]string{8: oldID}, Result{Devices: []Assigned{old}, Source: ByMap}},
		{"beside a card by index", slurm.Job{GPUIndexes: []int{0, 8}, Visible: []string{"0", oldID}}, nil, Result{
			Devices: []Assigned{whole, old}, Source: BySlurmd,
		}},
		{"beside a card by map", slurm.Job{GPUIndexes: []int{0, 8}, Visible: []string{"0", oldID}}, map[int]string{0: string(id(0))}, Result{Devices: []Assigned{whole, old}, Source: ByMap}},
		{"beside a card by id", slurm.Job{GPUIndexes: []int{0, 8}, Visible: []string{string(id(0)), oldID}}, nil, Result{Devices: []Assigned{whole, old}, Source: ByUUID}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Devices(test.job, two, mapped(test.gpuMap), listed(0, 1)); !reflect.DeepEqual(got, test.want) {
				t.Errorf("Devices\n got %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestOrderOfLargeDomains(t *testing.T) {
	far, near := card(0, 1), card(1, 0)
	far.Device.BusID, near.Device.BusID = "10000:01:00.0", "2000:01:00.0"
	got := Devices(slurm.Job{GPUIndexes: []int{0}}, []gpu.Card{far, near}, mapped(nil), counted("nvml", 1, 0))
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
		lists := []List{listed(2, 0, 1), counted("nvml", 0, 1), counted("nvidia", 0, 1, 2), Unclear("x")}
		own := mapped(nil)
		gpuMap := map[int]string{0: string(id(1)), 1: string(bus(0)), 2: string(bus(1)), 3: "x"}
		if order&4 != 0 {
			own = mapped(gpuMap)
		}
		got := Devices(job, node, own, lists[int(order)%len(lists)])

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
