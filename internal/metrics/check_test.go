package metrics

import (
	"os"
	"strings"
	"testing"
	"time"

	"bookend/internal/config"
	"bookend/internal/gpu"
)

// checked is a health check that saw these cards.
func checked(minute int, cards ...Card) Run {
	r := at(minute, HealthCheck)
	r.Job, r.Action, r.Check = 0, config.Ignore, &Check{Took: 250 * time.Millisecond, Cards: cards}
	return r
}

// gauges are the lines of the textfile on cards and on the health check's time.
func gauges(t *testing.T, f Files) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(f.Textfile)
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "bookend_gpu_") || strings.HasPrefix(line, "bookend_health_check_") ||
			strings.HasPrefix(line, "bookend_driver_") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// A card's figures stand until the next check: jobs' hooks leave them, a card that has gone has none, nor has what
// could not be read.
func TestCardsOfTheHealthCheck(t *testing.T) {
	f := host(t)
	record(t, f,
		checked(1, Card{GPU: 0, UUID: "GPU-a", Used: gpu.Bytes(5 << 30), Unexplained: gpu.Bytes(1 << 30),
			Leaked: gpu.Bytes(1 << 30)},
			Card{GPU: 1, UUID: "GPU-b", Used: gpu.Bytes(7), Unexplained: gpu.Bytes(7), Leaked: gpu.Bytes(0)}),
		checked(2, Card{GPU: -1, UUID: "GPU-a", Used: gpu.Bytes(0), Unexplained: gpu.Unknown("not told"),
			Leaked: gpu.Bytes(0)}),
		at(3, Epilog))
	want := []string{
		`bookend_gpu_used_bytes{gpu="",uuid="GPU-a"} 0`,
		`bookend_gpu_leaked_bytes{gpu="",uuid="GPU-a"} 0`,
		`bookend_health_check_duration_seconds 0.25`,
	}
	if got := gauges(t, f); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	record(t, f, checked(4)) // the driver could not be asked
	if got := gauges(t, f); len(got) != 1 {
		t.Errorf("figures of cards that nobody read: %q", got)
	}
	if s, err := Read(f.Var); err != nil || !s.Last[HealthCheck].Equal(noon.Add(4*time.Minute)) {
		t.Errorf("%v, %v", s.Last, err)
	}
}

// How many processes keep drains off stands until a check that cannot tell.
func TestKeepersOfTheHealthCheck(t *testing.T) {
	f := host(t)
	two := checked(1)
	two.Check.Keepers = new(int)
	*two.Check.Keepers = 2
	record(t, f, two, at(2, Epilog))
	if got := gauges(t, f); len(got) != 2 || got[0] != "bookend_driver_kept_open_processes 2" {
		t.Errorf("%q", got)
	}
	record(t, f, checked(3))
	if got := gauges(t, f); len(got) != 1 {
		t.Errorf("%q", got)
	}
}
