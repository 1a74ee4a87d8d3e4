// Package clock is the one place where the time is read. Mains call System and pass the value on.
package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock tells the time. Durations between events use Boot, which clock steps do not move; Wall is for display.
type Clock struct {
	Wall func() time.Time
	Boot func() time.Duration // CLOCK_BOOTTIME: time since boot, suspend included
}

// System returns the machine's clocks.
func System() Clock { return Clock{Wall: time.Now, Boot: boot} }

// Booted is when the machine was booted, by the wall clock of now.
func (c Clock) Booted() time.Time { return c.Wall().Add(-c.Boot()) }

func boot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // cannot fail on Linux >= 2.6.39 with a valid pointer
	}
	return time.Duration(ts.Nano())
}
