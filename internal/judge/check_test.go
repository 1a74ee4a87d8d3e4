package judge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"bookend/internal/config"
	"bookend/internal/drain"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

// A card that a job has says nothing for a drain's end, however clean it is: what was on it may be under the job. One
// that could not be read says nothing either.
func TestSeenByCard(t *testing.T) {
	var cards []finding.Card
	for i, bus := range []gpu.BusID{"0000:10:00.0", "0000:20:00.0", "0000:30:00.0"} {
		device := gpu.Device{ID: gpu.ID(fmt.Sprint("GPU-", i)), BusID: bus, Minor: &i, Vendor: "nvidia"}
		cards = append(cards, finding.Card{Index: i, Device: device})
	}
	epoch := gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	read := func(card finding.Card) gpu.Reading {
		return gpu.Reading{Device: card.Device, Memory: gpu.Memory{Total: gpu.Bytes(80 << 30), Reserved: gpu.Bytes(0), Used: gpu.Bytes(0), Free: gpu.Bytes(80 << 30)}}
	}
	live := ledger.Run{
		Job: slurm.Job{ID: 7, UID: 1001}, Key: "w1", Epoch: epoch, Devices: []ledger.Assigned{{Index: 1, Device: cards[1].Device}},
		Start: &ledger.End{At: time.Second, Wall: time.Unix(1000, 0)},
	}
	c := Check{Case: Case{Config: config.Default(), Node: &Node{Runs: []ledger.Run{live}}}}
	c.Seen.Epoch, c.Seen.Cards = epoch, cards
	c.Seen.Side.Snapshot = gpu.Snapshot{At: time.Minute, Readings: []gpu.Reading{read(cards[0]), read(cards[1])}}
	seen := c.DrainSeen(Judgement{})
	for i, want := range []struct {
		memory drain.Answer
		why    string
	}{{drain.Clean, ""}, {drain.Unknown, "a job still has it"}, {drain.Unknown, "could not be read"}} {
		if got := seen[cards[i].Device.ID]; got.Memory != want.memory || !strings.Contains(got.Why, want.why) || got.Given != (i == 1) {
			t.Errorf("GPU %d: %+v, want %v %q", i, got, want.memory, want.why)
		}
	}
}
