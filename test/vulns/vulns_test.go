package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// library is one that the programs are linked with, and reading the package of theirs that calls it.
const (
	library = "gopkg.in/yaml.v3"
	reading = "./internal/config"
)

// plant makes a database with one vulnerability: a function of the library, in every version.
func plant(t *testing.T, function string) string {
	t.Helper()
	const id, modified = "GO-0000-0001", "2026-01-01T00:00:00Z"
	dir := t.TempDir()
	for name, content := range map[string]any{
		"index/db.json":      map[string]any{"modified": modified},
		"index/modules.json": []any{map[string]any{"path": library, "vulns": []any{map[string]any{"id": id, "modified": modified}}}},
		"index/vulns.json":   []any{map[string]any{"id": id, "modified": modified}},
		"ID/" + id + ".json": map[string]any{
			"schema_version": "1.3.1", "id": id, "modified": modified, "published": modified, "summary": "planted for a test",
			"database_specific": map[string]any{"url": "https://example.invalid/" + id},
			"affected": []any{map[string]any{
				"package":            map[string]any{"name": library, "ecosystem": "Go"},
				"ranges":             []any{map[string]any{"type": "SEMVER", "events": []any{map[string]any{"introduced": "0"}}}},
				"ecosystem_specific": map[string]any{"imports": []any{map[string]any{"path": library, "symbols": []string{function}}}},
			}},
		},
	} {
		text, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func atRoot(t *testing.T) {
	t.Helper()
	t.Chdir("../..")
}

// What is called is found and named; what nobody calls is not.
func TestFindsWhatIsCalled(t *testing.T) {
	atRoot(t)
	for function, want := range map[string]int{"Decoder.Decode": exitFound, "Marshal": 0} {
		var out strings.Builder
		if got := run(&out, plant(t, function), true, []string{reading}); got != want {
			t.Errorf("%s: exit %d, want %d: %s", function, got, want, out.String())
		}
		if named := strings.Contains(out.String(), "GO-0000-0001") && strings.Contains(out.String(), function); named != (want == exitFound) {
			t.Errorf("%s: named %v: %s", function, named, out.String())
		}
	}
}

// A check that cannot be made is no failure unless it must be made, and is never silent; it waits for nobody long.
func TestNotChecked(t *testing.T) {
	atRoot(t)
	broken := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(broken.Close) // not before the parallel tests
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for name, db := range map[string]string{
		"no database": broken.URL, "no answer": "http://" + silent.Addr().String(), "nobody there": "http://" + closed.Addr().String(),
		"no such folder": filepath.Join(t.TempDir(), "none"), "an address that is none": "http://a b",
	} {
		for must, want := range map[bool]int{false: 0, true: exitFailed} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var out strings.Builder
				began := time.Now()
				if got := run(&out, db, must, []string{reading}); got != want || !strings.Contains(out.String(), "NOT checked") {
					t.Errorf("must %v: exit %d, want %d: %s", must, got, want, out.String())
				}
				if took := time.Since(began); took > longest/2 {
					t.Errorf("it waited for %v", took)
				}
			})
		}
	}
}

// A database that goes away while it is asked is one that cannot be reached; sources that cannot be read are a failure.
func TestHalfADatabase(t *testing.T) {
	atRoot(t)
	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/index/db.json.gz" {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	defer gone.Close()
	var out strings.Builder
	if got := run(&out, gone.URL, false, []string{reading}); got != 0 || !strings.Contains(out.String(), "NOT checked") {
		t.Errorf("exit %d: %s", got, out.String())
	}
	out.Reset()
	if got := run(&out, plant(t, "Marshal"), false, []string{"./nonexistent"}); got != exitFailed {
		t.Errorf("no sources: exit %d: %s", got, out.String())
	}
}

func TestAddress(t *testing.T) {
	for db, want := range map[string]string{
		"": public, "https://mirror.example/": "https://mirror.example", "/srv/db": "file:///srv/db", "file:///srv/db": "file:///srv/db",
	} {
		if got := address(db); got != want {
			t.Errorf("%q: %q, want %q", db, got, want)
		}
	}
}
