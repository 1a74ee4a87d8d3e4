package safetext

import (
	"slices"
	"strings"
	"testing"

	"bookend/test/must"
)

func TestClean(t *testing.T) {
	for _, test := range []struct {
		name string
		raw  string
		max  int
		want Safe
	}{
		{"one over", "abcdefg", 6, "abc..."},
		{"newline", "a\nexport LD_PRELOAD=x", 80, `a\x0aexport LD_PRELOAD=x`},
		{"terminal escape", "\x1b[2J", 80, `\x1b[2J`},
		{"UTF-8", "é", 80, `\xc3\xa9`},
		{"backslash", `a\x0a`, 80, `a\\x0a`},
		{"escape that just fits", "ab\n", 6, `ab\x0a`},
		{"escape is not cut in two", "ab\n\n", 8, `ab...`},
		{"backslash pair is not cut in two", `ab\c`, 4, `a...`},
		{"escape before the cut", "\nabcd", 7, `\x0a...`},
		{"no room for the dots", "abcdef", 2, ".."},
	} {
		must.Be(t, test.name, Clean(test.raw, test.max), test.want)
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

// What was cleaned is printable and bounded, is whole or shows that it was cut, and can be told from any other.
func FuzzClean(f *testing.F) {
	f.Add("python3", 16)
	f.Add("a\nb\\\x1b[0m\xff", 9)
	f.Add(`\\\\`, 3)
	f.Add("export PATH=/tmp\x00", 64)
	f.Add("\u202e\u00a0", -1)
	f.Fuzz(func(t *testing.T, raw string, max int) {
		got := string(Clean(raw, max))
		fits(t, got, max)
		whole := string(Clean(raw, 4*len(raw)+1))
		if back := unescape(t, whole); back != raw {
			t.Fatalf("%q is ambiguous: read back as %q, was %q", whole, back, raw)
		}
		if max >= len(whole) && got != whole {
			t.Fatalf("%q is cut to %q, and %d bytes may be used", whole, got, max)
		}
		if max < len(whole) && !strings.HasPrefix(whole, strings.TrimRight(got, ".")) {
			t.Fatalf("%q is cut to %q", whole, got)
		}
		if max < len(whole) && max >= len(dots) && !strings.HasSuffix(got, dots) {
			t.Fatalf("%q does not show that it was cut: %q", whole, got)
		}
		if strings.HasSuffix(got, dots) {
			unescape(t, strings.TrimSuffix(got, dots)) // no escape is cut in two
		}
	})
}

// What was kept is printable and bounded; clean words stay as they are.
func FuzzKeep(f *testing.F) {
	f.Add("| bookend: \\x0a", 80)
	f.Add("a\nb\x00", 9)
	f.Add("\\\\", 1)
	f.Fuzz(func(t *testing.T, raw string, max int) {
		got := string(Keep(raw, max))
		fits(t, got, max)
		if again := string(Keep(got, max)); again != got {
			t.Fatalf("%q, then %q", got, again)
		}
		if clean := string(Clean(raw, max)); string(Keep(clean, max)) != clean {
			t.Fatalf("%q does not stay as it is", clean)
		}
	})
}

func fits(t *testing.T, s string, max int) {
	t.Helper()
	if len(s) > 0 && len(s) > max {
		t.Fatalf("%d bytes, want at most %d: %q", len(s), max, s)
	}
	if i := slices.IndexFunc([]byte(s), func(c byte) bool { return c < 0x20 || c > 0x7e }); i >= 0 {
		t.Fatalf("byte %#x in %q", s[i], s)
	}
}
