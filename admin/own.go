package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/answer"
	"bookend/internal/report"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/internal/view"
)

const (
	// mostOutput bounds how much of a job's output is looked through, bytes: a log may be as large as its file system.
	mostOutput = 64 << 20
	ownLine    = "bookend: " // begins each line of Bookend's in a job's output
	widestOwn  = 400
)

// own shows users their own job: the start report that the kernel lets nobody else read, and Bookend's lines in a file
// of theirs. Nothing here is root's: what this process may not open the user may not see.
func (a *app) own(ref slurm.Ref, output string) error {
	node := nodeOf(a.env, a.config().Paths, a.node)
	var end []string
	if output != "" {
		lines, err := ownLines(output, uint32(a.env.EUID))
		if err != nil {
			return err
		}
		end = lines
	}
	start, clean, err := a.startReport(node, ref)
	if err != nil && len(end) == 0 {
		return err
	}
	missing := ""
	if err != nil {
		missing = err.Error()
	}
	own := answer.NewOwnReport(node, ref.String(), clean, missing, start, end)
	return a.write(func() any { return own }, func(w io.Writer) { view.Own(w, own, output) })
}

// startReport is what the job's log got at its start, a line each.
func (a *app) startReport(node string, ref slurm.Ref) (lines []string, clean bool, err error) {
	owner := slurm.Owner{ID: ref.ID, SLUID: ref.SLUID}
	if ref.Kind == slurm.RefArray || ref.Kind == slurm.RefHet {
		return nil, false, denied(fmt.Sprintf("needs root: without it jobs are known by their own id alone; squeue -j %s -O JobArrayID,JobID shows it while the job runs", ref))
	}
	// Threat: none: the file is opened as the user who asks, and is readable for the job's own user alone.
	r, err := state.GetReport(a.config().Paths.Run, node, owner)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EACCES):
		// One text for both: whether a job of somebody else's ran here is nobody's business.
		return nil, false, denied(fmt.Sprintf("needs root: job %s has no report for you on node %s: it is not yours, was on another node, or its report is not kept any more; "+
			"your job's output has what Bookend said (--output FILE shows it)", ref, node))
	default:
		return nil, false, fmt.Errorf("read the report of job %s: %w", ref, err)
	}
	for line := range strings.Lines(r.Text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, string(report.Keep(line, widestOwn)))
		}
	}
	return lines, r.Clean, nil
}

// ownLines are Bookend's lines in a job's output. The file is the user's, and so is what it says.
func ownLines(file string, uid uint32) ([]string, error) {
	// Threat: a FIFO or device that never ends, named by mistake.
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("read the job's output: %w", err)
	}
	defer f.Close()
	// Threat: none to root, who does not get here; what is another user's is not shown, whatever its mode.
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("read the job's output: %w", err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, fmt.Errorf("read the job's output: %q is no regular file", file)
	case st.Uid != uid:
		return nil, denied("needs root: that file is not yours")
	}
	var lines []string
	s := bufio.NewScanner(io.LimitReader(f, mostOutput))
	s.Buffer(make([]byte, 0, 64<<10), 1<<20)
	for s.Scan() {
		if _, line, ours := strings.Cut(s.Text(), ownLine); ours && len(s.Text())-len(line) <= len("| "+ownLine) {
			lines = append(lines, string(report.Keep(ownLine+line, widestOwn)))
		}
	}
	if err := s.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("read the job's output: %w", err)
	}
	return lines, nil
}
