package page

import "testing"

func TestHide(t *testing.T) {
	for _, tt := range []struct {
		text, want string
		names      []string
	}{
		{"alice", "(user)", []string{"alice"}},
		{"alice alice", "(user) (user)", []string{"alice"}},
		{"malice alices alice2 Alice", "malice alices alice2 Alice", []string{"alice"}},
		{"/home/alice/bob.out", "/home/(user)/(user).out", []string{"alice", "bob"}},
		{"user", "(user)", []string{"user"}},
		{"/home/ann-lee/ann", "/home/(user)/(user)", []string{"ann-lee", "ann"}},
		{"root (user)", "root ((user))", []string{"root", "user"}},
		{"", "", []string{"", "alice"}},
	} {
		if got := hide(tt.text, tt.names); got != tt.want {
			t.Errorf("%q without %q: %q, want %q", tt.text, tt.names, got, tt.want)
		}
	}
}
