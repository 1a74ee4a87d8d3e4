package operation

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"bookend/internal/config"

	"golang.org/x/sys/unix"
)

// Syslog sends a line of Line to the log socket at path (/dev/log). It never waits: a log daemon that does not
// read is an error at once. No socket is no error, as containers and small nodes have none.
//
// The standard library's log/syslog waits on a full socket, and package net makes a hook 450 kB larger.
func (e Entry) Syslog(path string, line []byte) error {
	if len(line) == 0 {
		return nil
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open log socket: %w", err)
	}
	defer unix.Close(fd)
	// Threat: a path that others can replace would get what the log says of jobs; configuration names it, root's.
	err = unix.Sendto(fd, e.frame(line), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: path})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("send to log socket %q: %w", path, err)
	}
	return nil
}

// frame puts RFC 3164's head before the line, as local programs write it: without the host's name.
func (e Entry) frame(line []byte) []byte {
	const daemon = 3 << 3 // the facility
	head := fmt.Sprintf("<%d>%s %s[%d]: ", daemon|severity(e.Level), e.At.Format(time.Stamp), e.Program, e.PID)
	return append([]byte(head), bytes.TrimSuffix(line, []byte("\n"))...)
}

func severity(l config.LogLevel) int {
	switch l {
	case config.Debug:
		return 7
	case config.Warning:
		return 4
	case config.Error:
		return 3
	}
	return 6
}
