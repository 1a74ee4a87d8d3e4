package joblog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"bookend/internal/slurm"
)

// ErrNotFile means that a process's output goes to no file that has a name, but to a pipe, a device or a removed file.
var ErrNotFile = errors.New("output is no file")

// Locate finds the file behind a descriptor of a process under proc ("/proc"), and its owner. It queries the file
// system, which may hang, so it belongs in a child.
func Locate(proc string, pid, fd int) (t Target, owner uint32, err error) {
	link := filepath.Join(proc, strconv.Itoa(pid), "fd", strconv.Itoa(fd))
	path, err := os.Readlink(link)
	// A name with a line feed or in another character set would not survive JSON unchanged.
	if err == nil && (!filepath.IsAbs(path) || strings.HasSuffix(path, " (deleted)") || !utf8.ValidString(path)) {
		err = ErrNotFile
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Stat(link, &st) // through the descriptor: the file itself, whatever its name
	}
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink == 0) {
		err = ErrNotFile
	}
	t = Target{Path: path, Dev: st.Dev, Ino: st.Ino}
	if err == nil {
		err = t.check()
	}
	if err != nil {
		return Target{}, 0, fmt.Errorf("locate output of process %d: %w: %.100q", pid, err, path)
	}
	return t, st.Uid, nil
}

// LocateOf is Locate for root: what leads to no file, or to another user's, is none. It belongs in a child too.
//
// Threat: a user may let a process's output lead anywhere. Nothing is opened, and the path is not followed: the kernel
// describes the file that is open. That path is opened later as the user alone (Append, Begin).
func LocateOf(proc string, pid, fd int, uid uint32) slurm.OutputFile {
	t, owner, err := Locate(proc, pid, fd)
	if err != nil || owner != uid {
		return slurm.OutputFile{}
	}
	return slurm.OutputFile(t)
}

const maxDescriptors = 256 // of a process that are examined

// Written returns the files that a process has open for writing, by descriptor. Like Locate, it belongs in a child.
func Written(proc string, pid int) ([]Target, error) {
	// Threat: a process of the user's may have any number of descriptors, and any name for its files.
	dir, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "fd"))
	if err != nil {
		return nil, fmt.Errorf("list files of process %d: %w", pid, err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxDescriptors)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("list files of process %d: %w", pid, err)
	}
	var found []Target
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || !writes(proc, pid, fd) {
			continue
		}
		t, _, err := Locate(proc, pid, fd)
		if err == nil && !slices.Contains(found, t) {
			found = append(found, t)
		}
	}
	return found, nil
}

func writes(proc string, pid, fd int) bool {
	// Threat: none: the kernel writes it.
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "fdinfo", strconv.Itoa(fd)))
	if err != nil {
		return false
	}
	_, flags, _ := strings.Cut(string(text), "flags:")
	flags, _, _ = strings.Cut(strings.TrimSpace(flags), "\n")
	n, err := strconv.ParseUint(flags, 8, 32)
	return err == nil && n&unix.O_ACCMODE != unix.O_RDONLY
}

// Apart reports whether an srun process may let its tasks write where that cannot be found: a terminal or a pipe of its
// own or, by its command line, one file per task (srun -o out.%t), of which a TaskEpilog only finds the first.
func Apart(proc string, pid int) bool {
	// Threat: the user chooses the command line, which is as long as the kernel allows (6 MB), or looks like another's.
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return false
	}
	return regexp.MustCompile(`%\d*[tnNu]`).Match(text) || elsewhere(proc, pid, unix.Stdout) ||
		elsewhere(proc, pid, unix.Stderr)
}

func elsewhere(proc string, pid, fd int) bool {
	_, _, err := Locate(proc, pid, fd)
	return errors.Is(err, ErrNotFile)
}

// errPattern means that the expansion is not known outside the job, or differs between Slurm versions.
var errPattern = errors.New("cannot be expanded here")

// expand expands a batch job's SLURM_JOB_STDOUT as slurmstepd does on the batch host: it replaces what follows a
// percent sign, and puts the working directory before a relative path. It returns errPattern for what is not known
// here, may differ between Slurm versions (a backslash), or is rare (a width). Root hooks get no array or job name:
// both come from the drop, if there is one. A job for which it names no array is not in one.
func (p Place) expand(pattern string) (path string, err error) {
	known := map[string]string{"%": "%", "j": fmt.Sprint(p.Job.ID), "u": p.Job.User}
	if p.Left {
		known["A"], known["x"] = known["j"], p.Drop.Name
	}
	if p.Drop.Array.Master != 0 {
		known["A"], known["a"] = fmt.Sprint(p.Drop.Array.Master), fmt.Sprint(p.Drop.Array.Task)
	}
	if p.Job.SLUID != "" { // a Slurm of slurm.TellsRun or later
		known["N"] = p.Job.Node
	}
	path = regexp.MustCompile(`(?s)%.?`).ReplaceAllStringFunc(pattern, func(code string) string {
		if known[code[1:]] == "" {
			err = errPattern
		}
		return known[code[1:]]
	})
	relative := !filepath.IsAbs(pattern)
	_, number := strconv.Atoi(pattern) // Slurm takes a number as a task
	if strings.ContainsRune(pattern, '\\') ||
		relative && (pattern == "" || number == nil || !filepath.IsAbs(p.Job.WorkDir)) {
		err = errPattern
	}
	if relative {
		path = p.Job.WorkDir + "/" + path
	}
	if err == nil {
		err = Target{Path: path}.check()
	}
	if err != nil {
		return "", fmt.Errorf("expand %.100q: %w", pattern, err)
	}
	return path, nil
}
