package slurmconf

import (
	"testing"
)

func TestContains(t *testing.T) {
	for _, tt := range []struct {
		list, node string
		is, known  bool
	}{
		{"n1", "n1", true, true},
		{"n1", "n11", false, true},
		{"N1", "n1", false, true},
		{"n1,n2", "n2", true, true},
		{"n[1-4]", "n4", true, true},
		{"n[1-4]", "n5", false, true},
		{"n[1-4]", "n04", false, true},
		{"n[01-10]", "n01", true, true},
		{"n[01-10]", "n1", false, true},
		{"n[01-10]", "n10", true, true},
		{"n[8-11]", "n10", true, true},
		{"n[8-11]", "n010", false, true},
		{"n[001-010,020],m3", "n020", true, true},
		{"n[001-010,020],m3", "m3", true, true},
		{"n[1-2]-ib", "n2-ib", true, true},
		{"n[1-2]-ib", "n2", false, true},
		{"rack[0-1]n[2-3]", "rack1n3", true, true},
		{"rack[0-1]n[2-3]", "rack1n4", false, true},
		{"[1-12][3-4]", "123", true, true}, // 12 and 3, not 1 and 23
		{"n[000x333]", "n000", false, false},
		{"n[000x333],m1", "m1", true, false},
		{"n[1-", "n1", false, false},
		{"n1-2]", "n1-2]", true, false},
		{"n[2-1]", "n1", false, false},
		{"n[]", "n", false, false},
		{"n[+1-2]", "n1", false, false},
		{"n[1-2]m[", "n1", false, false},
		{"n[1-99999999999999999999]", "n1", false, false},
		{"a[1]b[1]c[1]d[1]e[1]", "a1b1c1d1e1", false, false},
		{"", "n1", false, true},
		{"n[1-2]", "", false, true},
	} {
		if is, known := Contains(tt.list, tt.node); is != tt.is || known != tt.known {
			t.Errorf("Contains(%q, %q) = %v, %v; want %v, %v", tt.list, tt.node, is, known, tt.is, tt.known)
		}
	}
}
