package safetext

import (
	"fmt"
	"strings"
	"testing"
)

func TestTerminal(t *testing.T) {
	var b strings.Builder
	if n, err := fmt.Fprint(Terminal(&b), "a\x1b[31mb\x07c\x9bd\n\ne"); n != 14 || err != nil ||
		b.String() != "a\\x1b[31mb\\x07c\\x9bd\n\ne" {
		t.Errorf("%d, %v: %q", n, err, b.String())
	}
}
