package child

import (
	"os"
	"path/filepath"
	"testing"

	"bookend/test/must"
)

// script is a lookup program in a folder that is root's up to the top.
func script(t *testing.T, text string) string {
	t.Helper()
	dir := must.Have(os.MkdirTemp("/run", "child-test-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "lookup")
	must.Do(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	return path
}

func TestGroupsFrom(t *testing.T) {
	const missing = "/nonexistent/id"
	mistrusted := script(t, "echo 66")
	must.Do(t, os.Chmod(mistrusted, 0o777))
	good := script(t, `[ "$*" = "-G -- alice" ] && echo 20 30`)
	any := script(t, "echo 20")
	for name, test := range map[string]struct {
		from []string
		user string
		want []uint32
	}{
		"an answer":               {[]string{good}, "alice", []uint32{10, 20, 30}},
		"of another user":         {[]string{good}, "bob", []uint32{10}},
		"second path":             {[]string{missing, mistrusted, any}, "alice", []uint32{10, 20}},
		"group 0 and doubles":     {[]string{script(t, "echo 0 20 20 10")}, "alice", []uint32{10, 20}},
		"not trusted":             {[]string{mistrusted}, "alice", []uint32{10}},
		"hangs":                   {[]string{script(t, "exec /bin/sleep 1000"), any}, "alice", []uint32{10}},
		"floods":                  {[]string{script(t, "while echo 11 22; do :; done")}, "alice", []uint32{10}},
		"garbage":                 {[]string{script(t, "echo 20 x")}, "alice", []uint32{10}},
		"two lines":               {[]string{script(t, "echo 20; echo 30")}, "alice", []uint32{10}},
		"nothing":                 {[]string{script(t, "true")}, "alice", []uint32{10}},
		"option for a user":       {[]string{any}, "-n", []uint32{10}},
		"another's number":        {[]string{any}, "0", []uint32{10}},
		"own number":              {[]string{any}, "1000", []uint32{10, 20}},
		"no user":                 {[]string{any}, "", []uint32{10}},
		"user with a blank":       {[]string{any}, "a b", []uint32{10}},
		"user of a domain passes": {[]string{any}, `DOM\alice@example.org`, []uint32{10, 20}},
	} {
		must.Be(t, name, groupsFrom(test.from, 1000, 10, test.user), test.want)
	}
}
