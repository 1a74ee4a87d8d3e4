package texts

import (
	"testing"

	"bookend/internal/record"
	"bookend/test/must"
)

// What users showed others of their outputs is recognised, and what only speaks of it is not taken for it. Host memory is
// never taken for a GPU's.
func TestCollection(t *testing.T) {
	for _, path := range []string{Written, Formats, Heldout, HeldoutFormats} {
		t.Run(path, func(t *testing.T) {
			all := must.Have(Load(path))(t)
			for _, text := range all {
				text.look(t)
			}
			s := Of(all)
			t.Logf("%+v", s)
			if s.Sized == 0 || s.Recognised*100 < 85*s.Shortages || s.Read*100 < 85*s.Sized || s.Taken*100 > 10*s.Others {
				t.Error("less than 85 % recognised or read, or more than 10 % taken falsely")
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
		if text.Kind == "host" && (m.Kind == record.KindDevice || m.Kind == record.KindInit) && m.Framework != "ONNX Runtime" { // its arenas say the same of both
			t.Errorf("%s: host memory taken for a GPU's: %q", text.Name, m.Line)
		}
	}
}
