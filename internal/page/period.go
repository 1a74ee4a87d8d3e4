package page

import (
	"fmt"
	"strconv"
	"time"
)

var ages = map[byte]time.Duration{
	's': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour,
}

// dates are the accepted date formats, in this host's time zone unless one is given.
var dates = []string{
	"2006-01-02", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.RFC3339,
}

const longestAge = 36500 // in days: a hundred years

// moment parses a date, or how long ago something was. An empty text gives the zero time.
func moment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range dates {
		if t, err := time.ParseInLocation(form, text, time.Local); err == nil {
			return t, nil
		}
	}
	last := len(text) - 1
	unit, known := ages[text[last]]
	n, err := strconv.ParseUint(text[:last], 10, 32)
	if !known || err != nil || n > uint64(longestAge*24*time.Hour/unit) {
		return time.Time{}, fmt.Errorf("%q is no moment: want how long ago (90m, 2h, 3d, 2w) or a date (2026-11-21, "+
			"2026-11-21T08:00)", text)
	}
	return now.Add(-time.Duration(n) * unit), nil
}

// Period parses two bounds, each a date or how long before now it was. A zero time means that there is no bound.
func Period(since, until string, now time.Time) (time.Time, time.Time, error) {
	from, errSince := moment(since, now)
	to, errUntil := moment(until, now)
	switch {
	case errSince != nil:
		return from, to, fmt.Errorf("--since: %w", errSince)
	case errUntil != nil:
		return from, to, fmt.Errorf("--until: %w", errUntil)
	case !from.IsZero() && !to.IsZero() && to.Before(from):
		return from, to, fmt.Errorf("--until %s is before --since %s", until, since)
	}
	return from, to, nil
}
