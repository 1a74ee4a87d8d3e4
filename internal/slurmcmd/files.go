package slurmcmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/slurmconf"
)

// Read reads a configuration. An error is about its first file; what is wrong with included ones is in the lines. Slurm
// takes no pattern in an Include, and does not start with one. The disk may not answer: callers do this in a child.
func Read(path string) (slurmconf.Conf, error) { return read(path, false) }

// ReadPlugins reads plugstack.conf and the like, in which an include may be a pattern.
func ReadPlugins(path string) (slurmconf.Conf, error) { return read(path, true) }

func read(path string, patterns bool) (slurmconf.Conf, error) {
	text, err := readText(path)
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
			files = append(files, readFile(n))
		}
		return files
	}), nil
}

// readFile reads an included file. Why it could not be read is told without the path, which is told next to it.
func readFile(path string) slurmconf.File {
	text, err := readText(path)
	if err == nil {
		return slurmconf.File{Path: path, Text: text}
	}
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return slurmconf.File{Path: path, Unread: err.Error()}
}

// readText reads one file. Threat: none that is not there already: whoever can write slurmd's own configuration makes
// it run any program as root; a pipe or an endless file is what is kept out.
func readText(path string) ([]byte, error) {
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
