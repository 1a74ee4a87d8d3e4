package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/view"
)

// littleRoom is too little for what one hook writes: a record has some 4 KiB, and may have up to 1 MiB.
const littleRoom = 64 << 10

// rooms are the troubles with the file systems that hooks write to.
func rooms(cfg config.Config) (troubles []view.Trouble) {
	type room struct {
		code   code.Code
		folder string
	}
	list := []room{
		{code.StateWrite, cfg.Paths.Run}, {code.StateWrite, filepath.Join(cfg.Paths.Run, "drop")}, {code.StateWrite, cfg.Paths.Var},
	}
	if cfg.Metrics.Textfile != "" {
		list = append(list, room{code.StateWrite, filepath.Dir(cfg.Metrics.Textfile)})
	}
	if cfg.Log.File {
		list = append(list, room{code.LogFailed, cfg.Paths.Log})
	}
	said := map[string]bool{}
	for _, r := range list {
		why := noRoom(r.folder)
		if why == "" || said[r.folder] {
			continue
		}
		said[r.folder] = true
		troubles = append(troubles, view.Trouble{Code: r.code, Text: why})
	}
	return troubles
}

// noRoom says why nothing can be written below a folder, by its file system, or its parent's where it is not made yet;
// empty where it can.
func noRoom(folder string) string {
	var fs unix.Statfs_t
	// Threat: none: nothing is opened or written; the configuration that names the folder is root's.
	err := unix.Statfs(folder, &fs)
	if errors.Is(err, unix.ENOENT) {
		err = unix.Statfs(filepath.Dir(folder), &fs)
	}
	switch {
	case err != nil:
		return fmt.Sprintf("%s: %v", folder, err)
	case fs.Flags&unix.ST_RDONLY != 0:
		return folder + ": its file system is read-only"
	case fs.Bfree*uint64(fs.Bsize) < littleRoom:
		return fmt.Sprintf("%s: its file system is full: %d bytes are free", folder, fs.Bfree*uint64(fs.Bsize))
	case fs.Files > 0 && fs.Ffree == 0:
		return folder + ": its file system has no inodes left"
	}
	return ""
}
