package doctor

import (
	"runtime"
	"strings"
	"testing"

	"bookend/internal/config"
)

// Where a package brought Bookend its files come from the package, not from a folder that only who built it has.
func TestFixesOfAPackage(t *testing.T) {
	for pack, want := range map[Package]string{
		Deb: "apt-get install -y --reinstall -o Dpkg::Options::=--force-confmiss './bookend_1.2.3~rc1-1_" + runtime.GOARCH + ".deb'   # in the folder where that file is",
		RPM: "rpm -U --replacepkgs 'bookend-1.2.3~rc1-1." + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + ".rpm'   # in the folder where that file is",
	} {
		s := Site{Config: config.Default(), Version: "1.2.3~rc1", Root: "/"}
		s.Survey.System.Package = pack
		for _, r := range Rules() {
			if r.By != Installed || r.Kind != Regular {
				continue
			}
			path := r.Shown
			if r.place == "snippets" {
				path = r.Paths(s)[0]
			}
			if got := r.install(s, path); got != want {
				t.Errorf("%s: %q, want %q", r.Name, got, want)
			}
			if got := r.mend(s, path, 0, 0o4755); fromBuild(got) || !r.text && got != want {
				t.Errorf("%s, its mode: %q", r.Name, got)
			}
		}
		if got := installAll(s); got != want {
			t.Errorf("all: %q", got)
		}
		if got := mountDrop(s, "/run/bookend/drop"); got != "systemctl enable --now run-bookend-drop.mount" {
			t.Errorf("drop: %q", got)
		}
		s.Config.Backend = "/opt/bookend/bookend-gpu"
		if got := installAll(s); strings.Contains(got, "rpm") || strings.Contains(got, ".deb") {
			t.Errorf("what lies elsewhere is no package's: %q", got)
		}
	}
}

func TestPackageOf(t *testing.T) {
	for want, name := range map[Package]string{Deb: "var/lib/dpkg/info/bookend.list", RPM: "usr/share/licenses/bookend/LICENSE", "": "etc/bookend/bookend.yaml"} {
		n := node{T: t, dir: t.TempDir()}
		file(name, "/.\n/usr/bin/bookend\n", 0o644)(n)
		if got := packageOf(n.dir, "/usr/bin/bookend"); got != want {
			t.Errorf("%s: %q", name, got)
		}
		if got := packageOf(n.dir, "/usr/local/bin/bookend"); want == Deb && got != "" {
			t.Errorf("%s lists no other program: %q", name, got)
		}
	}
}
