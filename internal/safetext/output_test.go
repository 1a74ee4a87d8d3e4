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

func TestKeepAll(t *testing.T) {
	type Part struct{ Text string }
	got := KeepAll(struct {
		Part
		Pointer, None *Part
		List          []Part
		Number        int
	}{Part{"a\nb"}, &Part{"\x1b[2J"}, nil, []Part{{"123456789"}}, 7}, 8)
	if got.Text != `a\x0ab` || got.Pointer.Text != `\x1b[2J` || got.List[0].Text != "12345..." || got.Number != 7 {
		t.Errorf("%+v, %q", got, got.Pointer.Text)
	}
}
