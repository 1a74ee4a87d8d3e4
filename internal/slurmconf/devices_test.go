package slurmconf

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
	"bookend/test/golden"
	"bookend/test/must"
)

// spoil makes a card of another kind: AMD's, excluded, excluded without a minor, its id not cached, unread.
var spoil = map[byte]func(*gpu.Card){
	'a': func(c *gpu.Card) { c.Device.Vendor = "amd" },
	'x': func(c *gpu.Card) { c.Excluded = true },
	'X': func(c *gpu.Card) { c.Excluded, c.Device.Minor = true, nil },
	'u': func(c *gpu.Card) { c.Device.ID = "" },
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
		minor := must.Have(strconv.Atoi(strings.TrimRight(word, "axXur")))(t)
		c := gpu.Card{Device: gpu.Device{ID: gpu.ID(fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", n)),
			BusID: gpu.BusID(fmt.Sprintf("0000:%02x:00.0", n)), Minor: &minor, Vendor: "nvidia"}}
		if edit := spoil[word[len(word)-1]]; edit != nil {
			edit(&c)
		}
		all = append(all, c)
	}
	return all
}

// The devices of a job, and again those of its start among the same cards.
func TestDevices(t *testing.T) {
	golden.Archive(t, *update, "testdata/devices.txtar", func(given string) string {
		var g struct {
			Indexes        []int
			Visible        []string
			Problem, Cards string
			Map            map[int]string
			List           List
		}
		must.Do(t, json.Unmarshal([]byte(given), &g))
		cards := cardsOf(t, g.Cards)
		r := Devices(slurm.Job{GPUIndexes: g.Indexes, Visible: g.Visible, GPUProblem: g.Problem}, cards,
			config.NVIDIA{GPUMap: g.Map}, g.List)
		said := "source: " + string(r.Source) + "\n"
		for _, a := range r.Devices {
			said += fmt.Sprintf("%d: %s %s\n", a.Index, a.Device.BusID, a.Device.ID)
		}
		if len(r.Missing) > 0 {
			said += fmt.Sprintf("missing: %v\n", r.Missing)
		}
		if again := Again(r.Devices, r.Source, cards); fmt.Sprint(again.Devices) != fmt.Sprint(r.Devices) {
			t.Errorf("%s: again %+v, want %+v", given, again, r)
		}
		return said + r.Unknown
	})
}
