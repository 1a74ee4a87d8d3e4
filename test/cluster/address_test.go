package cluster

import "testing"

func TestLoopback(t *testing.T) {
	for name, tc := range map[string]struct {
		hosts, address string
		bound          bool
	}{
		"as most installers write it": {"127.0.0.1 localhost\n127.0.1.1\tvm.example.org vm # this one\n", "127.0.1.1", true},
		"one line for all":            {"127.0.0.1 localhost vm\n", "127.0.0.1", true},
		"IPv6 first":                  {"::1 vm\n127.0.0.1 vm\n", "127.0.0.1", true},
		"on the network":              {"127.0.0.1 localhost\n192.0.2.7 vm\n127.0.1.1 vm\n", "127.0.0.1", false},
		"only part of a name":         {"127.0.0.1 vm2 myvm\n", "127.0.0.1", false},
		"commented out":               {"#127.0.0.1 vm\n", "127.0.0.1", false},
		"no file":                     {"", "127.0.0.1", false},
	} {
		if address, bound := loopback(tc.hosts, "vm"); address != tc.address || bound != tc.bound {
			t.Errorf("%s: %q, %v, want %q, %v", name, address, bound, tc.address, tc.bound)
		}
	}
}
