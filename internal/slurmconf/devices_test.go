package slurmconf

import (
	"fmt"
	"reflect"
	"strconv"
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

// spoil makes a card of another kind: excluded, excluded without a minor, its id not cached, without a minor, unread.
var spoil = map[byte]func(*gpu.Card){
	'x': func(c *gpu.Card) { c.Excluded = true },
	'X': func(c *gpu.Card) { c.Excluded, c.Device.Minor = true, nil },
	'u': func(c *gpu.Card) { c.Device.ID = "" },
	'm': func(c *gpu.Card) { c.Device.Minor = nil },
	'r': func(c *gpu.Card) {
		*c = gpu.Card{Device: gpu.Device{BusID: c.Device.BusID}, Unknown: "input/output error"}
	},
}

// cardsOf reads cards in PCI order, each by its minor and what spoils it: "0 1x 2"; "-" is a place that is empty.
func cardsOf(t *testing.T, text string) (all []gpu.Card) {
	for n, word := range strings.Fields(text) {
		if word == "-" {
			continue
		}
		last := word[len(word)-1]
		minor, err := strconv.Atoi(strings.TrimRight(word, "xXumr"))
		if err != nil {
			t.Fatal(err)
		}
		c := card(n, minor)
		if edit := spoil[last]; edit != nil {
			edit(&c)
		}
		all = append(all, c)
	}
	return all
}

// listed is what slurmd -G says of GPUs with these minors, in its order.
func listed(minors ...int) List {
	l := List{Source: BySlurmd}
	for _, minor := range minors {
		l.GPUs = append(l.GPUs, GPU{fmt.Sprintf("/dev/nvidia%d", minor)})
	}
	return l
}

// counted is one untyped line of device files.
func counted(minors ...int) List {
	l := listed(minors...)
	l.Source = ByCount
	return l
}

// mapped is a configuration with the admin's own map; without one the default.
func mapped(gpuMap map[int]string) config.NVIDIA {
	if gpuMap == nil {
		return config.NVIDIA{}
	}
	return config.NVIDIA{GPUMap: gpuMap}
}

// outcome writes a result as tables have it: the places of its devices, then what is missing or unknown.
func outcome(r Result) string {
	var words []string
	for _, a := range r.Devices {
		place := "?"
		if a.Device.BusID != "" {
			place = strings.TrimPrefix(string(a.Device.BusID[5:7]), "0")
		}
		words = append(words, place)
	}
	for _, index := range r.Missing {
		words = append(words, fmt.Sprintf("no-%d", index))
	}
	if r.Unknown != "" {
		words = append(words, r.Unknown)
	}
	return strings.Join(words, " ")
}

func TestDevices(t *testing.T) {
	files := func(names ...string) List { return List{Source: BySlurmd, GPUs: []GPU{names}} }
	crossed, eight := "2 0 1 3", "0 1 2 3 4 5 6 7"
	g := func(n int) string { return string(id(n)) }
	all := listed(0, 1, 2, 3, 4, 5, 6, 7)
	type own = map[int]string
	for _, tt := range []struct {
		name    string
		indexes []int
		visible string
		cards   string
		list    List
		own     own
		want    string
	}{
		{"no GPUs", nil, "", eight, all, nil, ""},
		{"typed in reverse order", []int{2}, "", "0 1 2 3", listed(2, 3, 0, 1), nil, "0"},
		{"one died, still in gres.conf", []int{1, 2}, "", "0 2 3", listed(0, 1, 2, 3), nil, "1 no-1"},
		{"slurmd not asked", []int{0}, "", eight, Unclear("no answer"), nil,
			"the meaning of Slurm's GPU numbers is not known: no answer: " + hint},
		{"part of a GPU", []int{0}, "", eight, files("/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap21"), nil,
			`part of a GPU is given out as ["/dev/nvidia1" "/dev/nvidia-caps/nvidia-cap21"]: ` +
				"which part is not known without the UUID that AutoDetect=nvml adds"},
		{"counted", []int{1}, "", "0 1", counted(0, 1), nil, "1"},
		{"counted, the driver has more", []int{1}, "", "0 1 2", counted(0, 1), nil,
			"the driver has 3 GPUs and Slurm gives out 2: " + hint},

		{"map by id", []int{0, 2}, "", crossed, all, own{0: g(3), 2: g(1)}, "3 1"},
		{"map leaves the index out", []int{1}, "", eight, all, own{0: g(3)}, "nvidia.gpu_map has no GPU index 1"},
		{"map to the same GPU twice", []int{0, 1}, "", eight, all, own{0: g(3), 1: string(bus(3))},
			"two of the job's GPUs lead to the same device, " + g(3)},
		{"map to nonsense", []int{0}, "", eight, all, own{0: "card0"}, `"card0" is not a device id that is known here`},
		{"ids win over order", []int{0, 1}, g(1) + "," + g(2), crossed, all, nil, "1 2"},
		{"excluded that Slurm has", []int{1}, "", "0 1X 2 3", all, nil, "no-1"},
		{"index beyond the list", []int{3, 4}, "", "0 1 2 3", listed(0, 1, 2, 3), nil,
			"3 index 4 is not one of the 4 GPUs that slurmd lists"},
		{"middle GPU fell off, ids", []int{1, 2}, g(1) + "," + g(2), "0 - 2", all, nil, "2 no-1"},
		{"its GPU cannot be read", []int{1}, "", "0 1r", all, nil,
			"which GPU nvidia1 is not known: the minor of GPU 0000:01:00.0 could not be read"},
		{"more indexes than ids", []int{0, 1}, "0", eight, all, nil, "the job has 2 GPU indexes but 1 visible devices"},
		{"lists that differ", []int{0, 1}, "0,2", eight, all, nil, "the job has GPU index 1 but visible device 2"},
	} {
		job := slurm.Job{GPUIndexes: tt.indexes}
		if tt.visible != "" {
			job.Visible = strings.Split(tt.visible, ",")
		}
		got := Devices(job, cardsOf(t, tt.cards), mapped(tt.own), tt.list)
		if outcome(got) != tt.want {
			t.Errorf("%s: Devices gives %q, want %q", tt.name, outcome(got), tt.want)
		}
		if clear := got.Unknown == ""; clear != (got.Source != Ambiguous) {
			t.Errorf("%s: source %q of %q", tt.name, got.Source, outcome(got))
		}
	}
	amd := cardsOf(t, "128 129")
	amd[1].Device.Vendor = "amd"
	two := List{Source: BySlurmd, GPUs: []GPU{{"/dev/dri/renderD128"}, {"/dev/dri/renderD129"}}}
	if got := outcome(Devices(slurm.Job{GPUIndexes: []int{1}}, amd, mapped(nil), two)); got != "1" {
		t.Errorf("AMD: Devices gives %q, want %q", got, "1")
	}
}

func TestDevicesOfAListThatCannotBeRead(t *testing.T) {
	got := Devices(slurm.Job{GPUProblem: "SLURM_JOB_GPUS cannot be read"}, cards(0), mapped(nil), listed(0))
	if want := (Result{Unknown: "SLURM_JOB_GPUS cannot be read", Source: Ambiguous}); !reflect.DeepEqual(got, want) {
		t.Errorf("Devices = %+v, want %+v", got, want)
	}
}

// Which card a MIG instance is of only the driver tells.
func TestInstances(t *testing.T) {
	const mig, sibling = "MIG-11111111-2222-3333-4444-555555555555", "MIG-11111111-2222-3333-4444-666666666666"
	one, two := Assigned{8, gpu.Device{ID: mig}}, Assigned{9, gpu.Device{ID: sibling}}
	whole := Assigned{0, card(0, 0).Device}
	for name, tt := range map[string]struct {
		job  slurm.Job
		own  map[int]string
		want Result
	}{
		"one": {slurm.Job{GPUIndexes: []int{8}, Visible: []string{mig}}, nil,
			Result{Devices: []Assigned{one}, Source: ByUUID}},
		"two": {slurm.Job{GPUIndexes: []int{8, 9}, Visible: []string{mig, sibling}}, nil,
			Result{Devices: []Assigned{one, two}, Source: ByUUID}},
		"the same twice": {slurm.Job{GPUIndexes: []int{8, 9}, Visible: []string{mig, mig}}, nil,
			Result{Unknown: "two of the job's GPUs lead to the same device, " + mig, Source: Ambiguous}},
		"by map": {slurm.Job{GPUIndexes: []int{8}}, map[int]string{8: mig},
			Result{Devices: []Assigned{one}, Source: ByMap}},
		"next to a GPU by index": {slurm.Job{GPUIndexes: []int{0, 8}, Visible: []string{"0", mig}}, nil,
			Result{Devices: []Assigned{whole, one}, Source: BySlurmd}},
	} {
		if got := Devices(tt.job, cards(0, 1), mapped(tt.own), listed(0, 1)); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: Devices = %+v, want %+v", name, got, tt.want)
		}
	}
}
