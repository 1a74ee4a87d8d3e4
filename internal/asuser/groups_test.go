package asuser

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The same groups as id prints, for users of every system.
func TestGroupsOfTheSystem(t *testing.T) {
	for _, user := range []string{"daemon", "bin", "nobody"} {
		out, err := exec.Command("/usr/bin/id", "-G", user).Output()
		if err != nil {
			t.Fatal(err)
		}
		want, err := parseGroups("", string(out))
		if err != nil {
			t.Fatal(err)
		}
		got := Groups(1, want[0], user)
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", user, got, want)
		}
	}
}

// script is a lookup program in a folder that is root's up to the top.
func script(t *testing.T, text string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/run", "asuser-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "lookup")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestGroupsFrom(t *testing.T) {
	good := func(text string) lookup { return lookup{paths: []string{script(t, text)}} }
	mistrusted := good("echo 66")
	if err := os.Chmod(mistrusted.paths[0], 0o777); err != nil {
		t.Fatal(err)
	}
	named := good(`echo "$1   20 30"`)
	named.prefix = true
	missing := lookup{paths: []string{"/nonexistent/getent"}}
	tests := map[string]struct {
		from []lookup
		user string
		want []uint32
	}{
		"first answers":           {[]lookup{named, good("echo 99")}, "alice", []uint32{10, 20, 30}},
		"second path":             {[]lookup{{paths: []string{"/nonexistent", good("echo 20").paths[0]}}}, "alice", []uint32{10, 20}},
		"second program":          {[]lookup{missing, good("echo 20 10")}, "alice", []uint32{10, 20}},
		"failure, then answer":    {[]lookup{good("exit 2"), good("echo 20")}, "alice", []uint32{10, 20}},
		"group 0 and doubles":     {[]lookup{good("echo 0 20 20 10")}, "alice", []uint32{10, 20}},
		"not trusted":             {[]lookup{mistrusted}, "alice", []uint32{10}},
		"hangs":                   {[]lookup{good("exec /bin/sleep 1000"), good("echo 20")}, "alice", []uint32{10}},
		"floods":                  {[]lookup{good("while echo 11 22; do :; done")}, "alice", []uint32{10}},
		"garbage":                 {[]lookup{good("echo 20 x")}, "alice", []uint32{10}},
		"two lines":               {[]lookup{good("echo 20; echo 30")}, "alice", []uint32{10}},
		"nothing":                 {[]lookup{good("true")}, "alice", []uint32{10}},
		"option for a user":       {[]lookup{good("echo 20")}, "-n", []uint32{10}},
		"another's number":        {[]lookup{good("echo 20")}, "0", []uint32{10}},
		"own number":              {[]lookup{good("echo 20")}, "1000", []uint32{10, 20}},
		"no user":                 {[]lookup{good("echo 20")}, "", []uint32{10}},
		"user with a blank":       {[]lookup{good("echo 20")}, "a b", []uint32{10}},
		"user of a domain passes": {[]lookup{good("echo 20")}, `DOM\alice@example.org`, []uint32{10, 20}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := groupsFrom(test.from, 1000, 10, test.user); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestParseGroups(t *testing.T) {
	for out, name := range map[string]string{
		"alicia 20\n": "alice", "alice20\n": "alice", "bob 20\n": "alice", "4294967295\n": "", "4294967296\n": "",
		"-1\n": "", "+1\n": "", "1,2\n": "", "1\n2\n": "", "1\x002\n": "",
		strings.Repeat("1 ", maxGroups+1): "",
	} {
		if got, err := parseGroups(name, out); err == nil {
			t.Errorf("parseGroups(%q, %.20q) = %v", name, out, got)
		}
	}
}
