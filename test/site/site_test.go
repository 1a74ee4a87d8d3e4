package site

import (
	"os"
	"testing"

	"bookend/internal/config"
	"bookend/test/must"
)

// TestNodesApart: the fake GPUs of all nodes have the same UUIDs, so nodes that shared a directory or a metrics file
// would overwrite each other's figures, as nodes with their own disks never do.
func TestNodesApart(t *testing.T) {
	s := &Site{Dir: t.TempDir()}
	must.Do(t, os.MkdirAll(s.in("etc"), 0o755))
	var of [2]config.Config
	for i, node := range []string{"n1", "n2"} {
		must.Do(t, s.WriteConfig(node, "observe", ""))
		text := must.Have(os.ReadFile(s.ConfigFile(node)))(t)
		of[i], _ = config.Parse(text) // its programs are not installed here
	}
	if a, b := of[0], of[1]; a.Paths.Var == b.Paths.Var || a.Metrics.Textfile == b.Metrics.Textfile {
		t.Errorf("both nodes keep records in %q and %q and write %q and %q",
			a.Paths.Var, b.Paths.Var, a.Metrics.Textfile, b.Metrics.Textfile)
	}
}
