package cluster

import (
	"os"
	"strings"
	"testing"
)

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]Version{
		"slurm-wlm 22.05.8\n":   {22, 5, 8},
		"slurm 24.11.5\n":       {24, 11, 5},
		"slurm-wlm 26.05.5-1\n": {26, 5, 5},
		"slurm 26.05.0-0rc1\n":  {26, 5, 0},
	} {
		if v, err := parseVersion(text); err != nil || v != want {
			t.Errorf("%q: %v, %v", text, v, err)
		}
	}
	for _, text := range []string{"", "munge 0.5.15", "slurm 26", "slurm-wlm"} {
		if v, err := parseVersion(text); err == nil {
			t.Errorf("%q is version %v", text, v)
		}
	}
	if v := (Version{22, 5, 8}).String(); v != "22.05.8" {
		t.Error(v)
	}
	for _, tt := range []struct {
		v            Version
		major, minor int
		want         bool
	}{
		{Version{24, 5, 0}, 24, 5, true}, {Version{24, 11, 5}, 24, 5, true}, {Version{26, 5, 5}, 24, 11, true},
		{Version{23, 11, 9}, 24, 5, false}, {Version{24, 5, 8}, 24, 11, false},
	} {
		if have := tt.v.Since(tt.major, tt.minor); have != tt.want {
			t.Errorf("%v since %d.%d: %v", tt.v, tt.major, tt.minor, have)
		}
	}
}

// What runs in another root folder writes nothing there, sees the host's folders that it needs, and is in no chroot: a
// job may make namespaces of its own.
func TestRootOfItsOwn(t *testing.T) {
	root := os.Getenv("BOOKEND_SLURM_ROOT")
	if root == "" || root == "/" {
		root = t.TempDir() // nothing runs there
		if _, err := VersionIn(root); err == nil || !strings.Contains(err.Error(), `no program "slurmd"`) {
			t.Errorf("version in an empty folder: %v", err)
		}
		return
	}
	before := listing(t, root+"/var/lib")
	c := Start(t, Options{})
	_, out := submit(t, c, users(t)[0], "readlink /proc/self/root; readlink /proc/$$/cwd; unshare --user true && echo no chroot; grep VERSION_ID /etc/os-release /dev/null | cut -c1-12")
	if home, err := c.Home(users(t)[0]); err != nil || !strings.HasPrefix(out, "/\n"+home+"\nno chroot\n") {
		t.Errorf("the job says %q, %v", out, err)
	}
	if after := listing(t, root+"/var/lib"); after != before {
		t.Errorf("below %s is now %q, was %q", root, after, before)
	}
}

func listing(t *testing.T, folder string) (names string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names += e.Name() + " "
	}
	return names
}
