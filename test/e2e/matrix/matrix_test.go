package main

import (
	"os"
	"testing"
)

// The README says what the committed results say.
func TestPage(t *testing.T) {
	want, err := current("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if have, err := os.ReadFile("../../../" + page); err != nil || string(have) != want {
		t.Errorf("%s is not what the results say (%v): go run ./test/e2e/matrix", page, err)
	}
}
