// Command accuracy writes docs/accuracy.md and docs/performance.md from the committed records of the GPU lane and
// the collection of texts, and from nothing else. Run it from anywhere in the tree: go run ./test/gpu/accuracy
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"bookend/test/gpu/record"
)

func main() {
	if err := update(); err != nil {
		fmt.Fprintln(os.Stderr, "accuracy:", err)
		os.Exit(1)
	}
}

func update() error {
	root, err := findRoot()
	if err != nil {
		return err
	}
	pages, err := pages(root)
	if err != nil {
		return err
	}
	for path, text := range pages {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
		fmt.Println("wrote", path)
	}
	return nil
}

// pages renders every generated page, by path.
func pages(root string) (map[string]string, error) {
	files, err := record.Load(filepath.Join(root, "test/gpu/records"))
	if err != nil {
		return nil, err
	}
	scans, err := outputs(filepath.Join(root, "test/gpu/records/scan-*.txt"))
	if err != nil {
		return nil, err
	}
	scripts, err := outputs(filepath.Join(root, "test/gpu/records/script-*.txt"))
	if err != nil {
		return nil, err
	}
	searches, err := outputs(filepath.Join(root, "test/gpu/records/search-*.txt"))
	if err != nil {
		return nil, err
	}
	said, err := sayings(filepath.Join(root, "test/texts"))
	if err != nil {
		return nil, err
	}
	return map[string]string{
		filepath.Join(root, "docs/accuracy.md"):    accuracy(files, said),
		filepath.Join(root, "docs/performance.md"): performance(files, scans, scripts, searches),
	}, nil
}

// outputs are the raw outputs of a benchmark, oldest first.
func outputs(pattern string) ([]string, error) {
	names, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, string(text))
	}
	return all, nil
}

// findRoot goes up to the folder with go.mod.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above this folder")
		}
		dir = filepath.Dir(dir)
	}
}
