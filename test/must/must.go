// Package must ends a test by what it cannot go on without.
package must

import "testing"

// Do ends a test by an error.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Have is a value without its error: must.Have(f())(t).
func Have[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Do(t, err)
		return value
	}
}
