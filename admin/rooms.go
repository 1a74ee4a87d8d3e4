package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"bookend/internal/answer"
	"bookend/internal/code"
	"bookend/internal/config"
)

// littleRoom is too little for what one hook writes: a record has some 4 KiB, and may have up to 1 MiB.
const littleRoom = 64 << 10

// rooms are the troubles with the file systems that hooks write to.
func rooms(cfg config.Config) (troubles []answer.Symptom) {
	type room struct {
		code   code.Code
		folder string
	}
	list := []room{{code.StateWrite, cfg.Paths.Run}, {code.StateWrite, cfg.Paths.Var}}
	drop := filepath.Join(cfg.Paths.Run, "drop") // may be a file system of its own
	if _, err := os.Lstat(drop); err == nil {
		list = append(list, room{code.StateWrite, drop})
	}
	if cfg.Metrics.Textfile != "" {
		list = append(list, room{code.StateWrite, filepath.Dir(cfg.Metrics.Textfile)})
	}
	if cfg.Log.File {
		list = append(list, room{code.LogFailed, cfg.Paths.Log})
	}
	type same struct {
		code code.Code
		fs   unix.Fsid
		why  string
	}
	said := map[same]bool{} // of one file system that is full once is enough
	for _, r := range list {
		why, fs := noRoom(r.folder)
		if this := (same{r.code, fs, why}); why != "" && !said[this] {
			said[this] = true
			troubles = append(troubles, answer.Symptom{Code: r.code, Text: r.folder + ": " + why})
		}
	}
	return troubles
}

// noRoom says why nothing can be written below a folder, by its file system, or its parent's where it is not made yet;
// empty where it can.
func noRoom(folder string) (why string, _ unix.Fsid) {
	var fs unix.Statfs_t
	// Threat: none: nothing is opened or written; the configuration that names the folder is root's.
	err := unix.Statfs(folder, &fs)
	if errors.Is(err, unix.ENOENT) {
		err = unix.Statfs(filepath.Dir(folder), &fs)
	}
	switch {
	case err != nil:
		why = err.Error()
	case fs.Flags&unix.ST_RDONLY != 0:
		why = "its file system is read-only"
	case fs.Bfree*uint64(fs.Bsize) < littleRoom:
		why = fmt.Sprintf("its file system is full: %d bytes are free", fs.Bfree*uint64(fs.Bsize))
	case fs.Files > 0 && fs.Ffree == 0:
		why = "its file system has no inodes left"
	}
	return why, fs.Fsid
}
