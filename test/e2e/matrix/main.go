// Command matrix writes the README's table of what ran where from the committed results of the end-to-end tests, and from
// nothing else. "make e2e SLURM=all" makes such results.
//
//	go run ./test/e2e/matrix
package main

import (
	"fmt"
	"os"

	"bookend/test/e2e/results"
)

const page = "README.md"

func main() {
	if err := update("."); err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

func update(root string) error {
	text, err := current(root)
	if err != nil {
		return err
	}
	return os.WriteFile(root+"/"+page, []byte(text), 0o644) //nolint:gosec // a document
}

// current is the page with what the results say.
func current(root string) (string, error) {
	text, err := os.ReadFile(root + "/" + page)
	if err != nil {
		return "", err
	}
	runs, err := results.Load(root + "/" + results.Folder)
	if err != nil {
		return "", err
	}
	return results.Put(string(text), runs)
}
