package page

import (
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/ledger"
)

// berlin's clocks went back on 25 October 2026: that day has 25 hours.
func berlin(t *testing.T) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func TestTicks(t *testing.T) {
	for name, tt := range map[string]struct {
		since, until string
		zone         *time.Location
		want         string
	}{
		"a minute": {"2026-11-21 12:00:00", "2026-11-21 12:01:00", time.UTC,
			"12:00:00 12:00:10 12:00:20 12:00:30 12:00:40 12:00:50 12:01:00"},
		"an hour": {"2026-11-21 12:01:00", "2026-11-21 13:01:00", time.UTC,
			"12:15 12:30 12:45 13:00"},
		"over midnight": {"2026-11-21 22:10:00", "2026-11-22 03:00:00", time.UTC,
			"23:00 22 Nov* 01:00 02:00 03:00"},
		"days": {"2026-11-19 12:00:00", "2026-11-22 12:00:00", time.UTC,
			"12:00 20 Nov* 12:00 21 Nov* 12:00 22 Nov* 12:00"},
		"weeks begin on Mondays": {"2026-11-01 12:00:00", "2026-12-20 12:00:00", time.UTC,
			"2 Nov* 9 Nov* 16 Nov* 23 Nov* 30 Nov* 7 Dec* 14 Dec*"},
		"years": {"2020-03-01 00:00:00", "2026-03-01 00:00:00", time.UTC,
			"Feb 2021* Feb 2022* Feb 2023* Feb 2024* Feb 2025* Feb 2026*"},
		"a century": {"1950-01-01 00:00:00", "2050-01-01 00:00:00", time.UTC, ""},
		"a day of 25 hours": {"2026-10-24 22:00:00", "2026-10-26 02:00:00", berlin(t),
			"25 Oct* 05:00 11:00 17:00 23:00 26 Oct*"},
		"a day in a zone of its own": {"2026-11-21 22:00:00", "2026-11-22 02:30:00", time.FixedZone("", 5*3600+1800),
			"22:00 23:00 22 Nov* 01:00 02:00"},
		"nothing, the shortest there": {"2026-11-21 12:00:00", "2026-11-21 12:00:00", time.UTC,
			"12:00:00 12:00:10 12:00:20 12:00:30 12:00:40 12:00:50 12:01:00"},
	} {
		at := func(text string) time.Time {
			moment, err := time.ParseInLocation(time.DateTime, text, tt.zone)
			if err != nil {
				t.Fatal(err)
			}
			return moment
		}
		a := newAxis(nil, Request{Since: at(tt.since), Until: at(tt.until), Zone: tt.zone})
		var got []string
		last := -1.0
		for _, k := range a.ticks(mostTicks) {
			if k.At < 0 || k.At > 1 || k.At <= last {
				t.Errorf("%s: %q at %v after %v", name, k.Label, k.At, last)
			}
			last = k.At
			if k.Day {
				k.Label += "*"
			}
			got = append(got, k.Label)
		}
		if text := strings.Join(got, " "); tt.want != "" && text != tt.want || len(got) < 3 || len(got) > mostTicks+1 {
			t.Errorf("%s: %d: %s, want %s", name, len(got), text, tt.want)
		}
	}
}

// Whatever the time shown, no zoom has more labels than find room beside each other.
func TestTicksFit(t *testing.T) {
	for whole := time.Second; whole < 100*365*24*time.Hour; whole = whole/3*5 + 7*time.Second {
		a := newAxis(nil, Request{Since: noon.Add(-whole), Until: noon, Zone: berlin(t)})
		for i, list := range ticks(a) {
			if len(list) > mostTicks*Zooms[i]+1 {
				t.Errorf("%v at zoom %d: %d ticks", whole, Zooms[i], len(list))
			}
			if !slices.IsSortedFunc(list, func(x, y Tick) int { return int((x.At - y.At) * 1e9) }) {
				t.Errorf("%v at zoom %d: not in order", whole, Zooms[i])
			}
		}
	}
}

func TestTimeShown(t *testing.T) {
	runs := []ledger.Run{ran(1, cardA, seenAs(0, cardA, 0), seenAs(4, cardA, 0))}
	for name, tt := range map[string]struct {
		runs         []ledger.Run
		ask          Request
		since, until time.Time
	}{
		"all that is on record":      {runs, Request{Now: hour(10)}, hour(-0.1), hour(10)},
		"a copy ends with its looks": {runs, Request{}, hour(-0.04), hour(4)},
		"as asked":                   {runs, Request{Now: hour(10), Since: hour(2), Until: hour(3)}, hour(2), hour(3)},
		"the wrong way round": {runs, Request{Now: hour(10), Since: hour(3), Until: hour(2)}, hour(3),
			hour(3).Add(shortest)},
		"no record": {nil, Request{Now: hour(10)}, time.Time{}, hour(10)},
	} {
		c := Lay(tt.runs, tt.ask)
		if name != "no record" && !c.Since.Equal(tt.since) || !c.Until.Equal(tt.until) {
			t.Errorf("%s: %v to %v, want %v to %v", name, c.Since, c.Until, tt.since, tt.until)
		}
	}
}
