package report

import (
	"strings"
	"testing"
)

func TestClean(t *testing.T) {
	for _, test := range []struct {
		name string
		raw  string
		max  int
		want Safe
	}{
		{"plain", "python3 train.py", 80, "python3 train.py"},
		{"empty", "", 80, ""},
		{"exactly max", "abcdef", 6, "abcdef"},
		{"one over", "abcdefg", 6, "abc..."},
		{"far over", strings.Repeat("a", 1<<20), 8, "aaaaa..."},
		{"newline", "a\nexport LD_PRELOAD=x", 80, `a\x0aexport LD_PRELOAD=x`},
		{"carriage return, NUL, DEL", "a\r\x00\x7f", 80, `a\x0d\x00\x7f`},
		{"terminal escape", "\x1b[2J", 80, `\x1b[2J`},
		{"C1 control as UTF-8", "\u009b31m", 80, `\xc2\x9b31m`},
		{"UTF-8", "é", 80, `\xc3\xa9`},
		{"broken UTF-8", "\xff\xfe", 80, `\xff\xfe`},
		{"backslash", `a\x0a`, 80, `a\\x0a`},
		{"escape that just fits", "ab\n", 6, `ab\x0a`},
		{"escape is not cut in two", "ab\n\n", 8, `ab...`},
		{"backslash pair is not cut in two", `ab\c`, 4, `a...`},
		{"escape before the cut", "\nabcd", 7, `\x0a...`},
		{"no room for the dots", "abcdef", 2, ".."},
		{"no room", "abc", 0, ""},
		{"negative", "abc", -1, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Clean(test.raw, test.max); got != test.want {
				t.Errorf("Clean(%q, %d) = %q, want %q", test.raw, test.max, got, test.want)
			}
		})
	}
}

func TestKeep(t *testing.T) {
	name := string(Clean("\nexport PATH=/x", 80))
	line := "process 7 (" + name + ")"
	if got := Keep(string(Keep(line, 80)), 80); string(got) != line {
		t.Errorf("Keep twice = %q, want %q", got, line)
	}
	if got := Keep("a\x1b\n"+strings.Repeat("b", 80), 12); got != `a\x1b\x0a...` {
		t.Errorf("Keep = %q: it must bound and escape what does not belong", got)
	}
}

// unescape reads Clean's escapes back, which must give the bytes that went in.
func unescape(t *testing.T, s string) string {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			out = append(out, s[i])
			continue
		}
		if i++; s[i] == '\\' {
			out = append(out, '\\')
			continue
		}
		if s[i] != 'x' {
			t.Fatalf("unknown escape at %d of %q", i, s)
		}
		out = append(out, byte(strings.IndexByte(digits, s[i+1])<<4|strings.IndexByte(digits, s[i+2])))
		i += 2
	}
	return string(out)
}

const digits = "0123456789abcdef"
