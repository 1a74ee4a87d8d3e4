package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/rig"
)

// What must not happen to a guarded file: as inotify names it.
const (
	opened  = unix.IN_OPEN
	touched = unix.IN_ACCESS | unix.IN_MODIFY
)

// longAgo is when every guarded file was written last: a write shows, however coarse the clock.
var longAgo = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)

// sentinel is a file, FIFO or device that no hook may touch, by whatever name.
type sentinel struct {
	name      string
	fd        int // O_PATH: looks, and opens nothing
	forbidden uint32
	was       standing
}

// standing is what stat tells of a file that would change with it.
type standing struct {
	size, mtime int64
	uid, gid    uint32
	mode        uint32
	gone        bool
}

func (s *sentinel) look() (standing, error) {
	var st unix.Stat_t
	if err := unix.Fstat(s.fd, &st); err != nil {
		return standing{}, err
	}
	mtime := st.Mtim.Nano()
	if st.Mode&unix.S_IFMT == unix.S_IFIFO {
		mtime = 0 // changes with the filling of it
	}
	return standing{st.Size, mtime, st.Uid, st.Gid, st.Mode, st.Nlink == 0}, nil
}

// guard watches a file from now on, wherever it is moved.
func (w *world) guard(name, path string, forbidden uint32) {
	fd := rig.Have(unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0))
	rig.Try(os.Chtimes(path, longAgo, longAgo))
	wd := rig.Have(unix.InotifyAddWatch(w.notify, path, forbidden))
	s := &sentinel{name: name, fd: fd, forbidden: forbidden}
	s.was = rig.Have(s.look())
	w.watched[wd] = s
	w.sentinels, w.fds = append(w.sentinels, s), append(w.fds, fd)
}

// held is a FIFO with a text in it that nobody may take out of it or add to.
type held struct {
	name, text string
	fd         int
}

func (w *world) hold(name, path, text string) {
	fd := rig.Have(unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0))
	h := &held{name, text, fd}
	rig.Have(unix.Write(fd, []byte(text)))
	w.fifos, w.fds = append(w.fifos, h), append(w.fds, fd)
}

// changed says what of the guarded things is not as it was. Afterwards the world is good for no other run.
func (w *world) changed() (breaches []breach) {
	for _, s := range w.sentinels {
		if now, err := s.look(); err != nil || now != s.was {
			breaches = append(breaches, breach{"changed", true, fmt.Sprintf("%s was %+v, is %+v, %v", s.name, s.was,
				now, err)})
		}
	}
	for _, h := range w.fifos {
		if h.text != "" {
			continue // inotify tells who opened it
		}
		if n, _ := unix.Read(h.fd, make([]byte, 64)); n > 0 {
			breaches = append(breaches, breach{"fed", true, fmt.Sprintf("%s: %d bytes", h.name, n)})
		}
	}
	return append(breaches, w.seen()...)
}

// seen is what inotify saw happen to guarded files since the last call.
func (w *world) seen() (breaches []breach) {
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.Read(w.notify, buf)
		if n <= 0 || err != nil {
			return breaches
		}
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			wd := int(int32(binary.NativeEndian.Uint32(buf[at:])))
			mask := binary.NativeEndian.Uint32(buf[at+4:])
			at += unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[at+12:]))
			if s := w.watched[wd]; s != nil && mask&s.forbidden != 0 {
				breaches = append(breaches, breach{deed(mask), true, s.name})
			}
		}
	}
}

func deed(mask uint32) string {
	switch {
	case mask&unix.IN_MODIFY != 0:
		return "written"
	case mask&unix.IN_ACCESS != 0:
		return "read"
	}
	return "opened"
}

// judgeOutput says whether the job's output holds anything but the job's own words and reports, and makes it as it was.
func (w *world) judgeOutput() (breaches []breach) {
	text := rig.Have(io.ReadAll(io.NewSectionReader(w.output, 0, 1<<20)))
	rest, whole := strings.CutPrefix(string(text), ownWords)
	for line := range strings.Lines(rest) {
		whole = whole && (line == "\n" || strings.HasPrefix(line, "| bookend: ")) && strings.HasSuffix(line, "\n")
	}
	if !whole {
		breaches = append(breaches, breach{"spoilt", true, fmt.Sprintf("the job's output holds %.200q", text)})
		rig.Have(w.output.WriteAt([]byte(ownWords), 0))
	}
	rig.Try(w.output.Truncate(int64(len(ownWords))))
	return breaches
}
