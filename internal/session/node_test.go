package session

import (
	"fmt"
	"strings"
	"testing"

	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/slurmconf"
)

func gpuCard(minor int, bus gpu.BusID) gpu.Card {
	return gpu.Card{Device: gpu.Device{ID: gpu.ID(fmt.Sprint("GPU-", minor)), BusID: bus, Minor: &minor, Vendor: "nvidia"}}
}

// numbered is cards with their numbers, in words.
func numbered(cards []finding.Card) string {
	var all []string
	for _, c := range cards {
		name := string(c.Device.ID)
		if name == "" {
			name = string(c.Device.BusID)
		}
		all = append(all, fmt.Sprintf("%d=%s", c.Index, name))
	}
	return strings.Join(all, " ")
}

// The health check numbers the cards as the hooks do, and where Slurm's number is not certain it has none.
func TestEveryCard(t *testing.T) {
	first, second := gpuCard(0, "0000:10:00.0"), gpuCard(1, "0000:20:00.0")
	twisted := []gpu.Card{gpuCard(1, "0000:10:00.0"), gpuCard(0, "0000:20:00.0")}
	excluded := second
	excluded.Excluded = true
	byMap := config.NVIDIA{GPUMap: map[int]string{3: "GPU-0"}}
	for name, tt := range map[string]struct {
		cards []gpu.Card
		conf  config.NVIDIA
		list  slurmconf.List
		want  string
	}{
		"in order":        {[]gpu.Card{first, second}, config.NVIDIA{}, listedBySlurmd(0, 1), "0=GPU-0 1=GPU-1"},
		"in another":      {[]gpu.Card{first, second}, config.NVIDIA{}, listedBySlurmd(1, 0), "1=GPU-0 0=GPU-1"},
		"minors twisted":  {twisted, config.NVIDIA{}, listedBySlurmd(0, 1), "1=GPU-1 0=GPU-0"},
		"not Slurm's":     {[]gpu.Card{first, second}, config.NVIDIA{}, listedBySlurmd(1), "-1=GPU-0 0=GPU-1"},
		"not known":       {[]gpu.Card{first, second}, config.NVIDIA{}, slurmconf.Unclear("x"), "-1=GPU-0 -1=GPU-1"},
		"by map":          {[]gpu.Card{first, second}, byMap, slurmconf.List{}, "3=GPU-0 -1=GPU-1"},
		"one is left out": {[]gpu.Card{first, excluded}, config.NVIDIA{}, listedBySlurmd(0), "0=GPU-0"},
		"no GPU is there": {nil, config.NVIDIA{}, listedBySlurmd(0), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := numbered(everyCard(tt.cards, tt.conf, tt.list)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// listedBySlurmd is an answer of slurmd -G.
func listedBySlurmd(minors ...int) slurmconf.List {
	l := slurmconf.List{Source: slurmconf.BySlurmd}
	for _, m := range minors {
		l.GPUs = append(l.GPUs, slurmconf.GPU{fmt.Sprintf("/dev/nvidia%d", m)})
	}
	return l
}

// A look adds the ids that the driver alone knows, and instances in place of the card that they are part of; a card
// that it could not read stays.
func TestWithReadings(t *testing.T) {
	card := func(index int, id gpu.ID, bus gpu.BusID) finding.Card {
		return finding.Card{Index: index, Device: gpu.Device{ID: id, BusID: bus}}
	}
	read := func(id gpu.ID, bus gpu.BusID, parent gpu.ID) gpu.Reading {
		return gpu.Reading{Device: gpu.Device{ID: id, BusID: bus, Parent: parent}}
	}
	two := []finding.Card{card(0, "", "a"), card(1, "", "b")}
	for name, tt := range map[string]struct {
		readings []gpu.Reading
		want     string
	}{
		"both are read":                    {[]gpu.Reading{read("GPU-0", "a", ""), read("GPU-1", "b", "")}, "0=GPU-0 1=GPU-1"},
		"one is lost":                      {[]gpu.Reading{read("GPU-1", "b", "")}, "1=GPU-1 0=a"},
		"one is cut in two":                {[]gpu.Reading{read("GPU-0", "a", ""), read("MIG-0", "a", "GPU-0"), read("MIG-1", "a", "GPU-0"), read("GPU-1", "b", "")}, "-1=MIG-0 -1=MIG-1 1=GPU-1"},
		"one that the driver did not list": {[]gpu.Reading{read("GPU-0", "a", ""), read("GPU-1", "b", ""), read("GPU-2", "c", "")}, "0=GPU-0 1=GPU-1 -1=GPU-2"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := numbered(withReadings(two, gpu.Snapshot{Readings: tt.readings})); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// What is on a GPU that Slurm does not give out is not the health check's to judge.
func TestGivenCards(t *testing.T) {
	first, second := gpuCard(0, "0000:10:00.0"), gpuCard(1, "0000:20:00.0")
	for name, tt := range map[string]struct {
		list slurmconf.List
		want string
	}{
		"both":           {listedBySlurmd(0, 1), "0=GPU-0 1=GPU-1"},
		"one":            {listedBySlurmd(1), "0=GPU-1"},
		"not known":      {slurmconf.Unclear("x"), "-1=GPU-0 -1=GPU-1"},
		"parts of one":   {slurmconf.List{Source: slurmconf.BySlurmd, GPUs: []slurmconf.GPU{{"/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap3"}}}, "-1=GPU-1"},
		"all by a count": {slurmconf.List{Source: slurmconf.ByCount, GPUs: listedBySlurmd(0, 1).GPUs}, "0=GPU-0 1=GPU-1"},
	} {
		cards := []gpu.Card{first, second}
		c := judge.Check{}
		c.Seen.Given, c.Seen.Cards = slurmconf.Slurms(cards, tt.list), everyCard(cards, config.NVIDIA{}, tt.list)
		if got := numbered(c.Given()); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}
