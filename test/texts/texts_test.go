package texts

import (
	"testing"

	"bookend/internal/record"
	"bookend/test/must"
)

// What users showed others of their outputs is recognised, and what only speaks of it is not taken for it. Host memory is
// never taken for a GPU's.
func TestCollection(t *testing.T) {
	for _, path := range []string{Written, Formats, Heldout} {
		t.Run(path, func(t *testing.T) {
			all := must.Have(Load(path))(t)
			for _, text := range all {
				text.look(t)
			}
			s := Of(all)
			t.Logf("%+v", s)
			least := map[string]int{Written: 96, Formats: 99, Heldout: 90}[path]
			if s.Sized == 0 && path != Heldout || s.Recognised*100 < least*s.Shortages || s.Read*100 < 92*s.Sized || s.Taken*100 > 8*s.Others ||
				s.Right*100 < 95*s.Figures {
				t.Errorf("less than %d %% recognised, 92 %% of sizes or 95 %% of figures read, or more than 8 %% taken falsely", least)
			}
		})
	}
}

func (text Text) look(t *testing.T) {
	t.Helper()
	s, found := text.Judge()
	if s.Recognised < s.Shortages || s.Read < s.Sized || s.Right < s.Figures || s.Taken > 0 {
		t.Logf("%s (%s, %s): %+v", text.Name, text.Kind, text.Asked, found)
	}
	for _, m := range found {
		if m.Kind == record.KindHost && m.GPU != nil {
			t.Errorf("%s: host memory of a GPU: %q", text.Name, m.Line)
		}
		if text.Kind == "host" && (m.Kind == record.KindDevice || m.Kind == record.KindInit) && m.Framework != "ONNX Runtime" { // its arenas say the same of both
			t.Errorf("%s: host memory taken for a GPU's: %q", text.Name, m.Line)
		}
	}
}
