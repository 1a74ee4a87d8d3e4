package finding

import (
	"testing"

	"bookend/internal/code"
	"bookend/internal/gpu"
)

func TestLeft(t *testing.T) {
	about := func(c code.Code, bytes uint64) Finding { return Finding{Code: c, GPU: "a", Bytes: gpu.Bytes(bytes)} }
	elsewhere := about(code.Orphan, 9000)
	elsewhere.GPU = "b"
	unread := about(code.Residue, 77)
	unread.Bytes.Unknown = "not read"
	for name, tt := range map[string]struct {
		found []Finding
		left  uint64
	}{
		"clean":                        {nil, 0},
		"all kinds":                    {[]Finding{about(code.Orphan, 100), about(code.Residue, 20), about(code.Phantom, 3)}, 123},
		"others'":                      {[]Finding{about(code.Stray, 50), about(code.Foreign, 50), about(code.Dirty, 50), about(code.Trespass, 50)}, 0},
		"still changing":               {[]Finding{about(code.Moving, 80)}, 0},
		"another card, unknown figure": {[]Finding{elsewhere, unread, about(code.Orphan, 1)}, 1},
	} {
		if left := Left(tt.found, "a"); left != tt.left {
			t.Errorf("%s: %d, want %d", name, left, tt.left)
		}
	}
}
