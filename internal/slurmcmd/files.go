package slurmcmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/slurmconf"
)

// Read reads a configuration. An error is about its first file; what is wrong with included ones is in the lines. Slurm
// takes no pattern in an Include, and does not start with one. The disk may not answer: callers do this in a child.
func Read(path string) (slurmconf.Conf, error) { return read(path, false) }

// ReadFirst reads the first configuration that is there; at is empty if none is. An error of fs.ErrNotExist says that
// there is no gres.conf, which may be.
func ReadFirst(places []slurmconf.Files) (at slurmconf.Files, slurm, gres slurmconf.Conf, err error) {
	for _, at = range places {
		if slurm, err = Read(at.Slurm); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			gres, err = Read(at.Gres)
		}
		return at, slurm, gres, err
	}
	return slurmconf.Files{}, slurm, gres, nil
}

// Pyxis reports whether plugstack.conf, in which an include may be a pattern, loads pyxis.
func Pyxis(conf slurmconf.Conf) bool {
	file := filepath.Join(filepath.Dir(conf.Path), "plugstack.conf")
	if v, ok := conf.Get("PlugStackConfig"); ok {
		file = v.Text
	}
	stack, _ := read(file, true)
	return slices.ContainsFunc(stack.Lines, func(l slurmconf.Line) bool { // "required|optional PLUGIN [ARGUMENTS]"
		return strings.Contains(fmt.Sprint(l.Rest, l.Pairs, l.Include), "pyxis")
	})
}

func read(path string, patterns bool) (slurmconf.Conf, error) {
	text, err := ReadText(path)
	if err != nil {
		return slurmconf.Conf{}, err
	}
	return slurmconf.Parse(path, text, func(name string) (files []slurmconf.File) {
		names := []string{name}
		switch pattern := strings.ContainsAny(name, "*?["); {
		case pattern && !patterns:
			return []slurmconf.File{{Path: name, Unread: "Slurm takes no pattern here, and does not start with one"}}
		case pattern:
			names, _ = filepath.Glob(name) // in alphabetical order
		}
		for _, n := range names[:min(len(names), slurmconf.MaxIncluded)] {
			f := slurmconf.File{Path: n}
			if f.Text, err = ReadText(n); err != nil {
				f.Unread = err.Error()
			}
			files = append(files, f)
		}
		return files
	}), nil
}

// ReadText reads one file. Threat: none that is not there already: whoever can write slurmd's own configuration makes
// it run any program as root; a pipe or an endless file is what is kept out.
func ReadText(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > slurmconf.MaxBytes {
		return nil, fmt.Errorf("read %q: not a file of at most %d bytes", path, slurmconf.MaxBytes)
	}
	return io.ReadAll(io.LimitReader(file, slurmconf.MaxBytes))
}
