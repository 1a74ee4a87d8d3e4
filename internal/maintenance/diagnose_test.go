package maintenance

import (
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/node"
	"bookend/test/must"
)

// A fault that DCGM found is over when tests of its level or more have found none, or its GPU is gone.
func TestDiagnosed(t *testing.T) {
	a, _ := quarantined(t)
	of := func(id gpu.ID) []gpu.DiagFault { return []gpu.DiagFault{{Test: "memory", Hardware: true, GPU: id}} }
	bad := gpu.Diagnosis{Level: 3, Failed: of("GPU-a")}
	for name, tt := range map[string]struct {
		then gpu.Diagnosis
		says string
	}{
		"level 2 passed":             {gpu.Diagnosis{Level: 2}, "diag -r 3"},
		"level 3 passed":             {gpu.Diagnosis{Level: 3}, ""},
		"no result":                  {gpu.Diagnosis{Level: 3, Unknown: "it hung", Failed: of("GPU-a")}, "diag -r 3"},
		"the settings of a GPU":      {gpu.Diagnosis{Level: 3, Failed: []gpu.DiagFault{{Test: "software"}}}, ""},
		"another fault":              {gpu.Diagnosis{Level: 2, Failed: of("GPU-b")}, "diag -r 2"},
		"a fault of a GPU that left": {gpu.Diagnosis{Level: 3, Failed: of("GPU-gone")}, "diag -r 3"},
	} {
		must.Do(t, node.Journal[[]gpu.Diagnosis](a, "diagnoses").Write([]gpu.Diagnosis{bad, tt.then}))
		got := Diagnosed(a)
		must.Not(t, !strings.Contains(got, tt.says) || tt.says == "" && got != "", "%s: got %q", name, got)
	}
}
