package site

import (
	"os"
	"testing"

	"bookend/internal/config"
)

// TestNodesApart: the fake GPUs of all nodes have the same UUIDs, so nodes that shared a directory or a metrics file
// would overwrite each other's figures, as nodes with their own disks never do.
func TestNodesApart(t *testing.T) {
	s := &Site{Dir: t.TempDir()}
	if err := os.MkdirAll(s.in("etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	var of [2]config.Config
	for i, node := range []string{"n1", "n2"} {
		if err := s.WriteConfig(node, "observe", ""); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(s.ConfigFile(node))
		if err != nil {
			t.Fatal(err)
		}
		of[i], _ = config.Parse(text) // its programs are not installed here
	}
	if a, b := of[0], of[1]; a.Paths.Var == b.Paths.Var || a.Metrics.Textfile == b.Metrics.Textfile {
		t.Errorf("both nodes keep records in %q and %q and write %q and %q",
			a.Paths.Var, b.Paths.Var, a.Metrics.Textfile, b.Metrics.Textfile)
	}
}
