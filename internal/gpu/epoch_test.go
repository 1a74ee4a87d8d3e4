package gpu

import "testing"

func TestEpochSame(t *testing.T) {
	whole := Epoch{Boot: "b", Driver: "580", Module: "m@1"}
	for name, tc := range map[string]struct {
		a, b Epoch
		want bool
	}{
		"equal":           {whole, whole, true},
		"other boot":      {whole, Epoch{"c", "580", "m@1"}, false},
		"other driver":    {whole, Epoch{"b", "595", "m@1"}, false},
		"reloaded":        {whole, Epoch{"b", "580", "m@2"}, false},
		"boot unknown":    {Epoch{"", "580", "m@1"}, Epoch{"", "580", "m@1"}, false},
		"driver unknown":  {Epoch{"b", "", "m@1"}, Epoch{"b", "", "m@1"}, false},
		"module unknown":  {Epoch{"b", "580", ""}, Epoch{"b", "580", ""}, false},
		"nothing known":   {Epoch{}, Epoch{}, false},
		"known on a side": {whole, Epoch{"b", "580", ""}, false},
	} {
		if got := tc.a.Same(tc.b); got != tc.want {
			t.Errorf("%s: Same = %v, want %v", name, got, tc.want)
		}
		if tc.a.Same(tc.b) != tc.b.Same(tc.a) {
			t.Errorf("%s: not symmetric", name)
		}
	}
}

func TestEpochChanged(t *testing.T) {
	whole := Epoch{Boot: "b", Driver: "580", Module: "m@1"}
	for name, tc := range map[string]struct {
		a, b Epoch
		want bool
	}{
		"equal":             {whole, whole, false},
		"other boot":        {whole, Epoch{"c", "580", "m@1"}, true},
		"reloaded":          {whole, Epoch{"b", "580", "m@2"}, true},
		"no driver":         {Epoch{"b", "", ""}, Epoch{"b", "", ""}, false},
		"gone since":        {whole, Epoch{"b", "", ""}, false},
		"nothing known":     {Epoch{}, Epoch{}, false},
		"rest is not known": {Epoch{"b", "", ""}, Epoch{"c", "580", ""}, true},
	} {
		if got := tc.a.Changed(tc.b); got != tc.want || got != tc.b.Changed(tc.a) {
			t.Errorf("%s: Changed = %v, want %v", name, got, tc.want)
		}
	}
}
