package asuser

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var groupsForm = regexp.MustCompile(`^[ \t\v\f\r\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]*([0-9]+[ \t\v\f\r\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]*)*\n?$`)

// The groups are those of one line of numbers about this user, and never root's.
func FuzzParseGroups(f *testing.F) {
	f.Add("", "1000 27 4\n", uint32(1000))
	f.Add("alice", "alice                 1000 27\n", uint32(1000))
	f.Add("alice", "alice2 0\n", uint32(100))
	f.Add("", "0 4294967295\n", uint32(5))
	f.Add("a", "a 1\nb 0\n", uint32(5))
	f.Add("", "", uint32(0))
	f.Fuzz(func(t *testing.T, name, out string, gid uint32) {
		groups, err := parseGroups(name, out)
		if err != nil {
			if groups != nil {
				t.Fatalf("%v and %v", groups, err)
			}
			return
		}
		line, found := strings.CutPrefix(out, name)
		if !found || name == "" && !groupsForm.MatchString(line) {
			t.Fatalf("%q of %q was accepted: %v", out, name, groups)
		}
		var plain []uint32
		for _, word := range strings.Fields(line) {
			n, err := strconv.ParseUint(word, 10, 32)
			if err != nil || n == 1<<32-1 {
				t.Fatalf("%q was accepted", word)
			}
			plain = append(plain, uint32(n))
		}
		if !slices.Equal(groups, plain) || len(groups) > maxGroups {
			t.Fatalf("%v of %q", groups, out)
		}
		all := withPrimary(gid, groups)
		rest := slices.Clone(all[1:])
		slices.Sort(rest)
		if all[0] != gid || slices.Contains(rest, 0) || slices.Contains(rest, gid) || len(slices.Compact(rest)) != len(all)-1 {
			t.Fatalf("%v with group %d are %v", groups, gid, all)
		}
	})
}

// A name that is handed to getent and id is one word and no option, and no other user's number.
func FuzzUserName(f *testing.F) {
	for _, seed := range []string{"alice", "-G", "--help", "a b", "a:b", "../x", "1000", "0", "+0", "0x0", "\x00", "a\n", "18446744073709551616", "\u0661", "a\u00a0b"} {
		f.Add(seed, uint32(1000))
	}
	f.Fuzz(func(t *testing.T, user string, uid uint32) {
		if !plainName(user) || otherID(user, uid) {
			return
		}
		if user == "" || len(user) > 256 || strings.ContainsAny(user[:1], "-+") || strings.ContainsAny(user, " \t\n\v\f\r\x00:/\x1b\x7f") {
			t.Errorf("name %q", user)
		}
		if strings.Trim(user, "0123456789") == "" && fmt.Sprint(uid) != strings.TrimLeft(user, "0") && uid != 0 {
			t.Errorf("%q is not user %d", user, uid)
		}
	})
}

// No single line of a status may differ from the user's, none may be missing.
func FuzzProveThread(f *testing.F) {
	const status = "Name:\tbookend-epilog\nState:\tR (running)\nUid:\t1000\t1000\t1000\t1000\nGid:\t100\t100\t100\t100\nGroups:\t27 100 \n" +
		"CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\n"
	f.Add(status, 2, "Uid:\t1000\t1000\t0\t1000")
	f.Add(status, 7, "CapEff:\t0000000000000001")
	f.Add(status, 4, "Groups:\t0 27 100")
	f.Add(status, 10, "NoNewPrivs:\t0")
	f.Add("Uid:\t1000\t1000\t1000\t1000\n", 0, "")
	f.Fuzz(func(t *testing.T, text string, at int, line string) {
		groups := []uint32{100, 27}
		if err := proveThread(text, 1000, 100, groups); err == nil {
			proven(t, text)
		}
		lines := strings.Split(status, "\n")
		if at < 0 || at >= len(lines) || strings.Contains(line, "\n") {
			return
		}
		lines[at] = line
		text = strings.Join(lines, "\n")
		if err := proveThread(text, 1000, 100, groups); err == nil {
			proven(t, text)
		}
	})
}

// facts are the lines that prove a thread to be this user's, with the blanks that strings.Fields knows.
var facts = func() (out []*regexp.Regexp) {
	for _, fact := range []string{`Uid: 1000 1000 1000 1000`, `Gid: 100 100 100 100`, `Groups: 27 100`, `NoNewPrivs: 1`,
		`CapInh: 0{16}`, `CapPrm: 0{16}`, `CapEff: 0{16}`, `CapBnd: 0{16}`, `CapAmb: 0{16}`} {
		out = append(out, regexp.MustCompile(`(?m)^`+strings.ReplaceAll(fact, " ", `[\s\v\x{85}\pZ]*`)+`[\s\v\x{85}\pZ]*$`))
	}
	return out
}()

// proven looks for each fact by itself.
func proven(t *testing.T, text string) {
	t.Helper()
	for _, fact := range facts {
		if !fact.MatchString(text) {
			t.Fatalf("%q proves nothing about %s", text, fact)
		}
	}
}
