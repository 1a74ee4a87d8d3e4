package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/answer"
	"bookend/internal/report"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// widestOwn bounds a line of a start report.
const widestOwn = 400

// own shows users their own job: the start report that the kernel lets nobody else read. Nothing here is root's: what
// this process may not open the user may not see.
func (a *app) own(ref slurm.Ref) error {
	node := nodeOf(a.env, a.config().Paths, a.node)
	if ref.Kind == slurm.RefArray || ref.Kind == slurm.RefHet {
		return denied(fmt.Sprintf("needs root: without it jobs are known by their own id alone; "+
			"squeue -j %s -O JobArrayID,JobID shows it while the job runs", ref))
	}
	// Threat: none: the file is opened as the user who asks, and is readable for the job's own user alone.
	r, err := state.GetReport(a.config().Paths.Run, node, slurm.Owner{ID: ref.ID, SLUID: ref.SLUID})
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EACCES):
		// One text for both: whether a job of somebody else's ran here is nobody's business.
		return denied(fmt.Sprintf("needs root: job %s has no report for you on node %s: it is not yours, was on "+
			"another node, or its report is not kept any more; your job's output has what Bookend said", ref, node))
	case err != nil:
		return fmt.Errorf("read the report of job %s: %w", ref, err)
	}
	var lines []string
	for line := range strings.Lines(r.Text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, string(report.Keep(line, widestOwn)))
		}
	}
	own := answer.NewOwnReport(node, ref.String(), r.Clean, lines)
	return a.write(func() any { return own }, func(w io.Writer) { own.Text(w) })
}
