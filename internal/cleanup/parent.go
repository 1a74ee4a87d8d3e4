package cleanup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// maxStat is more than the 52 numbers and the name of a stat line.
const maxStat = 4 << 10

// parentOf reads the parent of one of this process's ancestors. Threat: the name in the line is the process's choice,
// brackets, blanks and newlines too; only what follows the last bracket is the kernel's.
func parentOf(proc string, pid int) (int, error) {
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, fmt.Errorf("read parent: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxStat))
	if err != nil {
		return 0, fmt.Errorf("read parent of process %d: %w", pid, err)
	}
	parent, err := parseParent(text)
	if err != nil {
		return 0, fmt.Errorf("read parent of process %d: %w", pid, err)
	}
	return parent, nil
}

// parseParent reads a stat line's fourth field: behind the name come state, parent, ...
func parseParent(text []byte) (int, error) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 {
		return 0, errors.New("no number behind the name")
	}
	parent, err := strconv.Atoi(string(fields[1]))
	if err != nil || parent < 0 {
		return 0, fmt.Errorf("%.40q", fields[1])
	}
	return parent, nil
}
