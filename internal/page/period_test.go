package page

import (
	"testing"
	"time"
)

func TestMoment(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.Local)
	for text, want := range map[string]time.Time{
		"": {}, "90m": now.Add(-90 * time.Minute), "2h": now.Add(-2 * time.Hour), "3d": now.Add(-72 * time.Hour),
		"2w": now.Add(-14 * 24 * time.Hour), "30s": now.Add(-30 * time.Second),
		"2026-11-20": time.Date(2026, 11, 20, 0, 0, 0, 0, time.Local), "2026-11-20T08:30": time.Date(2026, 11, 20, 8,
			30, 0, 0, time.Local),
		"2026-11-20 08:30:05":  time.Date(2026, 11, 20, 8, 30, 5, 0, time.Local),
		"2026-11-20T08:00:00Z": time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC), "0d": now,
	} {
		if got, err := moment(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"soon", "d", "-1d", "3x", "3", "2026-13-01", "99999999d", "1.5h", " 3d",
		"4294967296s", "3d4h"} {
		if got, err := moment(text, now); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
