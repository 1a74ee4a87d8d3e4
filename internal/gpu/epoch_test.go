package gpu

import "testing"

// Epochs are the same or changed only by what both sides know; of the rest nobody knows.
func TestEpochs(t *testing.T) {
	whole := Epoch{Boot: "b", Driver: "580", Module: "m@1"}
	for name, tc := range map[string]struct {
		a, b          Epoch
		same, changed bool
	}{
		"equal":             {whole, whole, true, false},
		"other boot":        {whole, Epoch{"c", "580", "m@1"}, false, true},
		"other driver":      {whole, Epoch{"b", "595", "m@1"}, false, true},
		"reloaded":          {whole, Epoch{"b", "580", "m@2"}, false, true},
		"boot unknown":      {Epoch{"", "580", "m@1"}, Epoch{"", "580", "m@1"}, false, false},
		"driver unknown":    {Epoch{"b", "", "m@1"}, Epoch{"b", "", "m@1"}, false, false},
		"module unknown":    {Epoch{"b", "580", ""}, Epoch{"b", "580", ""}, false, false},
		"nothing known":     {Epoch{}, Epoch{}, false, false},
		"gone since":        {whole, Epoch{"b", "", ""}, false, false},
		"rest is not known": {Epoch{"b", "", ""}, Epoch{"c", "580", ""}, false, true},
	} {
		for _, pair := range [][2]Epoch{{tc.a, tc.b}, {tc.b, tc.a}} {
			same, changed := pair[0].Same(pair[1]), pair[0].Changed(pair[1])
			if same != tc.same || changed != tc.changed {
				t.Errorf("%s: got same %v, changed %v; want %v, %v", name, same, changed, tc.same, tc.changed)
			}
		}
	}
}
