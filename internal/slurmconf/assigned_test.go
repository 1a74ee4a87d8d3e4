package slurmconf

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
)

func gpuCard(minor int, bus gpu.BusID) gpu.Physical {
	id := gpu.ID(fmt.Sprint("GPU-", minor))
	return gpu.Physical{Device: gpu.Device{ID: id, BusID: bus, Minor: &minor, Vendor: "nvidia"}}
}

// numbered returns GPUs as text, each with its number.
func numbered(cards []record.Assigned) string {
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

// The health check numbers the GPUs as the hooks do, and where Slurm's number is not certain it has none. What is on a
// GPU that Slurm does not give out is not its to judge.
func TestEveryCard(t *testing.T) {
	first, second := gpuCard(0, "0000:10:00.0"), gpuCard(1, "0000:20:00.0")
	both, twisted := []gpu.Physical{first, second}, []gpu.Physical{gpuCard(1, "0000:10:00.0"), gpuCard(0, "0000:20:00.0")}
	excluded := second
	excluded.Excluded = true
	part := GPU{"/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap3"}
	byMap := map[int]string{3: "GPU-0"}
	for name, tt := range map[string]struct {
		cards       []gpu.Physical
		conf        map[int]string
		list        List
		want, given string // given is "" for the same
	}{
		"in order":        {both, nil, list("/dev/nvidia0", "/dev/nvidia1"), "0=GPU-0 1=GPU-1", ""},
		"in another":      {both, nil, list("/dev/nvidia1", "/dev/nvidia0"), "1=GPU-0 0=GPU-1", ""},
		"minors twisted":  {twisted, nil, list("/dev/nvidia0", "/dev/nvidia1"), "1=GPU-1 0=GPU-0", ""},
		"not Slurm's":     {both, nil, list("/dev/nvidia1"), "-1=GPU-0 0=GPU-1", "0=GPU-1"},
		"not known":       {both, nil, Unclear("x"), "-1=GPU-0 -1=GPU-1", ""},
		"by map":          {both, byMap, List{}, "3=GPU-0 -1=GPU-1", ""},
		"one is left out": {[]gpu.Physical{first, excluded}, nil, list("/dev/nvidia0"), "0=GPU-0", ""},
		"no GPU is there": {nil, nil, list("/dev/nvidia0"), "", ""},
		"parts of one": {both, nil, List{Source: record.BySlurmd, GPUs: []GPU{part}},
			"-1=GPU-0 -1=GPU-1", "-1=GPU-1"},
	} {
		gives, cards := Slurms(tt.cards, tt.list), Every(tt.cards, tt.conf, tt.list)
		given := slices.DeleteFunc(slices.Clone(cards), func(c record.Assigned) bool {
			gives, listed := gives[c.Device.BusID]
			return listed && !gives
		})
		if tt.given == "" {
			tt.given = tt.want
		}
		if got, given := numbered(cards), numbered(given); got != tt.want || given != tt.given {
			t.Errorf("%s: got %q, given out %q, want %q and %q", name, got, given, tt.want, tt.given)
		}
	}
}

// Which other GPUs a job may have follows from their types, however its own are named. An end knows it from the start.
// GPUs on record have the numbers that Slurm has for them now, and none if it gives them out no more.
func TestRenumber(t *testing.T) {
	was := []record.Assigned{{Index: 0, Device: gpuCard(0, "0000:10:00.0").Device}, {Index: 1, Device: gpuCard(1, "0000:20:00.0").Device}}
	for name, tt := range map[string]struct {
		kept *Kept
		own  map[int]string
		want string
	}{
		"nothing is known": {nil, nil, "0=GPU-0 1=GPU-1"},
		"not certain":      {&Kept{List: Unclear("x")}, nil, "0=GPU-0 1=GPU-1"},
		"in another order": {&Kept{List: list("/dev/nvidia1", "/dev/nvidia0")}, nil, "1=GPU-0 0=GPU-1"},
		"one is left out":  {&Kept{List: list("/dev/nvidia1")}, nil, "-1=GPU-0 0=GPU-1"},
		"by map":           {nil, map[int]string{3: "GPU-0"}, "3=GPU-0 -1=GPU-1"},
	} {
		must.Be(t, name, numbered(tt.kept.Renumber(was, tt.own)), tt.want)
	}
}

func TestOrigin(t *testing.T) {
	cards := []gpu.Physical{gpuCard(0, "0000:10:00.0"), gpuCard(1, "0000:20:00.0")}
	given := list("/dev/nvidia0", "/dev/nvidia1")
	given.Types = []string{"a", "b"}
	numbers, uuid := slurm.Job{ID: 7, GPUIndexes: []int{0}}, slurm.Job{ID: 7, GPUIndexes: []int{0}, Visible: []string{"GPU-0"}}
	started := record.Run{Job: numbers, Devices: []record.Assigned{{Index: 0, Device: cards[0].Device}}}
	started.Numbering.Source = record.BySlurmd
	for name, tt := range map[string]struct {
		job    slurm.Job
		past   record.Run
		source record.Source
		want   int
	}{
		"by slurmd": {numbers, record.Run{}, record.BySlurmd, 1}, "by UUID": {uuid, record.Run{}, record.ByUUID, 1},
		"at its end": {numbers, started, record.BySlurmd, 0},
	} {
		if _, got := OfJob(tt.job, tt.past, cards, nil, given); got.Source != tt.source || len(got.Perhaps) != tt.want {
			t.Errorf("%s: %+v, want %d", name, got, tt.want)
		}
	}
}

// A look adds the ids that the driver alone knows, and instances in place of the GPU that they are part of; a GPU that
// it could not read stays.
func TestWithReadings(t *testing.T) {
	read := func(id gpu.ID, bus gpu.BusID, parent gpu.ID) gpu.Reading {
		return gpu.Reading{Device: gpu.Device{ID: id, BusID: bus, Parent: parent}}
	}
	two := []record.Assigned{{Index: 0, Device: gpu.Device{BusID: "a"}}, {Index: 1, Device: gpu.Device{BusID: "b"}}}
	first, second, third := read("GPU-0", "a", ""), read("GPU-1", "b", ""), read("GPU-2", "c", "")
	for name, tt := range map[string]struct {
		readings []gpu.Reading
		want     string
	}{
		"both are read": {[]gpu.Reading{first, second}, "0=GPU-0 1=GPU-1"},
		"one is lost":   {[]gpu.Reading{second}, "1=GPU-1 0=a"},
		"one is cut in two": {[]gpu.Reading{first, read("MIG-0", "a", "GPU-0"), read("MIG-1", "a", "GPU-0"), second},
			"-1=MIG-0 -1=MIG-1 1=GPU-1"},
		"one that the driver did not list": {[]gpu.Reading{first, second, third}, "0=GPU-0 1=GPU-1 -1=GPU-2"},
	} {
		if got := numbered(WithReadings(two, gpu.Snapshot{Readings: tt.readings})); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// What a job's numbers meant at its start they mean at its end, if the record surely is of this run.
func TestNumbersSettledAtTheStart(t *testing.T) {
	job := slurm.Job{ID: 7, GPUIndexes: []int{0, 3}, Start: time.Unix(1_800_000_000, 0)}
	run := record.Run{Job: job, Devices: []record.Assigned{{Index: 0}, {Index: 3}}}
	run.Numbering.Source = record.BySlurmd
	for name, tt := range map[string]struct {
		change func(*record.Run, *slurm.Job)
		want   bool
	}{
		"open":                          {func(*record.Run, *slurm.Job) {}, true},
		"open, without a start to tell": {func(_ *record.Run, j *slurm.Job) { j.Start = time.Time{} }, true},
		"closed, of this run":           {func(r *record.Run, _ *slurm.Job) { r.Ends = []record.End{{}} }, true},
		"closed, perhaps of another": {func(r *record.Run, j *slurm.Job) {
			r.Ends, j.Start = []record.End{{}}, time.Time{}
		}, false},
		"ambiguous":      {func(r *record.Run, _ *slurm.Job) { r.Numbering.Source = record.Ambiguous }, false},
		"without GPUs":   {func(r *record.Run, _ *slurm.Job) { r.Devices = nil }, false},
		"another number": {func(_ *record.Run, j *slurm.Job) { j.GPUIndexes = []int{0, 1} }, false},
		"one less":       {func(_ *record.Run, j *slurm.Job) { j.GPUIndexes = []int{0} }, false},
	} {
		r, j := run, job
		if tt.change(&r, &j); NeedsList(j, r) == tt.want {
			t.Errorf("%s: settled %v, want %v", name, !tt.want, tt.want)
		}
	}
}
