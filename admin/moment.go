package main

import (
	"fmt"
	"strconv"
	"time"
)

// ages are the units of how long ago something was.
var ages = map[byte]time.Duration{
	's': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour,
}

// dates are the forms of a date, in this host's own time unless it says which.
var dates = []string{
	"2006-01-02", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.RFC3339,
}

// longestAge bounds how long ago something may be: a hundred years, in days.
const longestAge = 36500

// moment reads a date, or how long ago something was; empty is no moment at all.
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

// period reads --since and --until.
func period(since, until string, now time.Time) (from, to time.Time, err error) {
	if from, err = moment(since, now); err != nil {
		return from, to, fmt.Errorf("--since: %w", err)
	}
	if to, err = moment(until, now); err != nil {
		return from, to, fmt.Errorf("--until: %w", err)
	}
	if !from.IsZero() && !to.IsZero() && to.Before(from) {
		return from, to, fmt.Errorf("--until %s is before --since %s", until, since)
	}
	return from, to, nil
}
