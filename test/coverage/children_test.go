package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// parent is a program that becomes nobody in a child of itself.
const parent = `package main

import (
	"fmt"
	"os"
	"syscall"
)

func main() {
	if len(os.Args) > 1 {
		child()
		os.Exit(3)
	}
	p, err := os.StartProcess("/proc/self/exe", []string{"x", "child"}, &os.ProcAttr{Env: []string{}, Files: []*os.File{nil, os.Stdout, os.Stderr}})
	if err != nil {
		panic(err)
	}
	state, err := p.Wait()
	fmt.Println(state.ExitCode(), err)
}

func child() {
	if err := syscall.Setuid(65534); err != nil {
		os.Exit(4)
	}
	fmt.Println("child", len(os.Environ()))
}
`

// A program that starts itself with an empty environment, as hooks do, and a child that has become another user, both
// report what they reached; on stderr, which tests compare, there is no word of it.
func TestChildrenCount(t *testing.T) {
	dir := t.TempDir()
	for path := dir; path != os.TempDir(); path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	data, overlay := filepath.Join(dir, "data"), filepath.Join(dir, "overlay.json")
	if err := open(dir, data); err != nil {
		t.Fatal(err)
	}
	if err := writeOverlay(dir, overlay, data); err != nil {
		t.Fatal(err)
	}
	src := filepath.Join(dir, "src")
	if err := os.Mkdir(src, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"main.go": parent, "go.mod": "module bookend\n\ngo 1.26\n"} {
		if err := os.WriteFile(filepath.Join(src, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-cover", "-overlay="+overlay, "-o", filepath.Join(dir, "program"), ".")
	build.Dir, build.Env = src, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := exec.Command(filepath.Join(dir, "program"))
	run.Env = []string{}
	if out, err := run.CombinedOutput(); err != nil || string(out) != "child 0\n3 <nil>\n" {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(data, "tmp.covcounters.half"), []byte("x"), 0o600); err != nil { // a killed one
		t.Fatal(err)
	}
	text, err := merge(dir, data)
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := parseProfile(string(text))
	if err != nil {
		t.Fatal(err)
	}
	reached, panics := 0, 0
	for _, b := range blocks {
		if b.reached {
			reached++
		} else {
			panics++
		}
	}
	if reached < 5 || panics != 2 {
		t.Errorf("%d blocks were reached, %d were not, want all but the two for errors:\n%s", reached, panics, text)
	}
	if _, err := builtIn("another Go", data); err == nil {
		t.Error("a Go that is written otherwise passes")
	}
}
