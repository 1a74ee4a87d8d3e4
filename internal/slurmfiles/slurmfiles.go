// Package slurmfiles reads Slurm's configuration from a node's disk, with all that it includes. The disk may not answer:
// whoever calls it does so in a child.
package slurmfiles

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

// maxFiles bounds what one configuration may include.
const maxFiles = 64

// Read reads a configuration. An error is about its first file; what is wrong with included ones stands in the lines. Slurm
// takes no pattern in an Include, and does not start with one.
func Read(path string) (slurmconf.Conf, error) { return read(path, false) }

// ReadPlugins reads plugstack.conf and the like, in which an include may be a pattern.
func ReadPlugins(path string) (slurmconf.Conf, error) { return read(path, true) }

func read(path string, patterns bool) (slurmconf.Conf, error) {
	text, err := Text(path)
	if err != nil {
		return slurmconf.Conf{}, err
	}
	included, files := map[string][]slurmconf.File{}, 0
	conf := slurmconf.Parse(path, text, included)
	for len(conf.Wanted) > 0 && files < maxFiles {
		for _, name := range conf.Wanted {
			included[name] = matching(name, maxFiles-files, patterns)
			files += max(1, len(included[name]))
		}
		conf = slurmconf.Parse(path, text, included)
	}
	return conf, nil
}

// matching reads the files that a name leads to: one, or in alphabetical order those of a pattern.
func matching(name string, most int, patterns bool) []slurmconf.File {
	names := []string{name}
	switch pattern := strings.ContainsAny(name, "*?["); {
	case pattern && !patterns:
		return []slurmconf.File{{Path: name, Unread: "Slurm takes no pattern here, and does not start with one"}}
	case pattern:
		names, _ = filepath.Glob(name)
	}
	var files []slurmconf.File
	for i, n := range names {
		f := slurmconf.File{Path: n}
		if i >= most {
			f.Unread = fmt.Sprintf("more than %d files", maxFiles)
			return append(files, f)
		}
		text, err := Text(n)
		if f.Text = text; err != nil {
			f.Unread = reason(err)
		}
		files = append(files, f)
	}
	return files
}

// reason is an error without the path, which stands beside it.
func reason(err error) string {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err.Error()
	}
	return err.Error()
}

// Text reads one file. Threat: none that is not there already: whoever can write slurmd's own configuration makes it
// run any program as root; a pipe or an endless file is what is kept out.
func Text(path string) ([]byte, error) {
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
