package world

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The judged must have no hand in the judge: of the tree's packages the world may know values, and nothing that these
// import either may lead to more.
func TestWorldImportsNoJudgement(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"bookend/internal/gpu", "bookend/internal/slurm", "bookend/test/soak/world"}
	if got := strings.Fields(string(out)); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("imported: %q, want %q", got, want)
	}
}
