package texts

import (
	"testing"

	"bookend/internal/record"
	"bookend/test/must"
)

// What users showed others of their outputs is recognised, and what only speaks of it is not taken for it. Host memory is
// never taken for a GPU's. Misses are listed, but not those of texts that are to stay unread.
func TestCollection(t *testing.T) {
	for path, least := range map[string]struct{ recognised, sizes, figures int }{
		Written: {96, 95, 94}, Formats: {99, 99, 99}, Heldout: {96, 97, 95}} {
		t.Run(path, func(t *testing.T) {
			all := must.Have(Load(path))(t)
			for _, text := range all {
				text.look(t, path != Heldout)
			}
			s := Of(all)
			t.Logf("%+v", s)
			if s.Sized == 0 && path != Heldout || s.Recognised*100 < least.recognised*s.Shortages ||
				s.Read*100 < least.sizes*s.Sized || s.Right*100 < least.figures*s.Figures || s.Taken*100 > 4*s.Others {
				t.Errorf("less than %+v %% recognised or read, or more than 4 %% taken falsely", least)
			}
		})
	}
}

func (text Text) look(t *testing.T, shown bool) {
	t.Helper()
	s, found := text.Judge()
	if shown && (s.Recognised < s.Shortages || s.Read < s.Sized || s.Right < s.Figures || s.Taken > 0) {
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
