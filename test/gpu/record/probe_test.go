package record

import "testing"

func TestPair(t *testing.T) {
	for name, tc := range map[string]struct {
		ours, bare []float64
		ratio      float64
		held       bool
	}{
		"held":                  {[]float64{110, 300, 100}, []float64{100, 100, 100}, 1.1, true},
		"not held":              {[]float64{120, 120, 100}, []float64{100, 100, 100}, 1.2, false},
		"by rounds, not totals": {[]float64{100, 220, 300}, []float64{50, 200, 300}, 1.1, true},
		"nothing measured":      {nil, nil, 0, false},
		"a round of no time":    {[]float64{1, 3}, []float64{0, 3}, 1, true},
	} {
		p := Pair{Limit: 1.15, Ours: Timing{Millis: tc.ours}, Bare: Timing{Millis: tc.bare}}
		if p.Ratio() != tc.ratio || p.Held() != tc.held {
			t.Errorf("%s: ratio %v, held %v; want %v, %v", name, p.Ratio(), p.Held(), tc.ratio, tc.held)
		}
	}
}

// A cause that is judged card by card is what it is on the worst of them.
func TestDiagnosisOf(t *testing.T) {
	d := &Diagnosis{Causes: []Cause{{Name: "a", Answer: "no"}, {Name: "b", Answer: "yes"},
		{Name: "a", Answer: "cannot tell"}, {Name: "b", Answer: "no"}}}
	for name, want := range map[string]string{"a": "cannot tell", "b": "yes", "c": ""} {
		if c, found := d.Of(name); c.Answer != want || found != (want != "") {
			t.Errorf("%s is %q (%v), want %q", name, c.Answer, found, want)
		}
	}
	if _, found := (*Diagnosis)(nil).Of("a"); found {
		t.Error("no diagnosis has an answer")
	}
}
