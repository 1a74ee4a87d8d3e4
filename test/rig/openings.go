package rig

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Openings are those of one file since they are watched, by whatever process.
type Openings struct{ events *os.File }

// WatchOpenings watches a file, which must be there and not be replaced.
func WatchOpenings(path string) (Openings, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return Openings{}, fmt.Errorf("watch %q: %w", path, err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN); err != nil {
		events.Close()
		return Openings{}, fmt.Errorf("watch %q: %w", path, err)
	}
	return Openings{events}, nil
}

// Next waits until the file has been opened once more.
func (o Openings) Next(patience time.Duration) error {
	if err := o.events.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err := o.events.Read(make([]byte, unix.SizeofInotifyEvent))
	return err
}

// Close ends the watch.
func (o Openings) Close() error { return o.events.Close() }
