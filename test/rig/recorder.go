package rig

import (
	"slices"
	"strings"
	"syscall"
	"time"
)

// Recorders are the recorders that run one of the programs below a folder.
func Recorders(dir string) []Process {
	return Processes(func(p Process) bool {
		return strings.HasPrefix(p.Exe(), dir+"/") && slices.Contains(p.Args(), "--record")
	})
}

// EndRecorders ends them, and their backends with them.
func EndRecorders(dir string) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		all := Recorders(dir)
		if len(all) == 0 {
			return
		}
		for _, p := range all {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
}
