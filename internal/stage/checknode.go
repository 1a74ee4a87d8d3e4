package stage

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/inventory"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// presentRequest crosses the pipe of opPresent.
type presentRequest struct {
	Sys        string `json:"sys"`
	DriverProc string `json:"driver_proc"`
}

// servePresent asks neither driver nor card: the kernel's own list of what is on the bus knows.
var servePresent = served(func(r presentRequest) (bool, error) {
	if _, err := os.Lstat(r.DriverProc); err == nil {
		return true, nil
	}
	return inventory.OnBus(r.Sys)
})

// presentTime is for two listings, of which none asks a device.
const presentTime = time.Second

// hasCards reports whether there is anything to check: a card on the bus or a driver, or records of jobs that had one. Where
// nobody can tell there is. On a node without GPUs the health check leaves no trace.
func (c *check) hasCards() bool {
	present, err := ask[bool](opPresent, presentRequest{c.cfg.Paths.Sys, c.cfg.NVIDIA.DriverProc}, c.left(presentTime, c.reserve()))
	if present || err != nil {
		return true
	}
	nodes, err := state.Nodes(c.cfg.Paths.Run, "")
	return len(nodes) > 0 || err != nil
}

// nameNode finds out which node this is. slurmd tells its health check; a timer or NHC may not.
func (c *check) nameNode() bool {
	name, why := c.env.Getenv("SLURMD_NODENAME"), ""
	if name == "" {
		name, why = c.guessNode()
	}
	if why == "" && !slurm.ValidNode(name) {
		why = fmt.Sprintf("%.64q is not a node's name", name)
	}
	if why != "" {
		fmt.Fprintf(c.env.Stderr, "bookend: %s\n", why)
		c.add(finding.Finding{Code: code.BadEnv, Observed: why, Expected: "SLURMD_NODENAME, or one node on this host"})
		return false
	}
	c.job.Node, c.job.Context = name, c.phase
	return true
}

// guessNode takes the host's name, unless the hooks of this host know it by another.
func (c *check) guessNode() (name, why string) {
	nodes, err := state.Nodes(c.cfg.Paths.Run, "")
	host, hostErr := readOwn(filepath.Join(c.cfg.Paths.Proc, "sys/kernel/hostname"))
	host, _, _ = strings.Cut(strings.TrimSpace(host), ".")
	switch {
	case err != nil:
		return "", fmt.Sprintf("SLURMD_NODENAME is not set, and the records do not tell: %v", err)
	case slices.Contains(nodes, host), len(nodes) == 0 && hostErr == nil:
		return host, ""
	case len(nodes) == 1:
		return nodes[0], ""
	}
	return "", fmt.Sprintf("SLURMD_NODENAME is not set, and this host may be any of %d nodes", len(nodes))
}
