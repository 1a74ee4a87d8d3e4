// Package view words documents for a terminal: people read what programs read, from the same value. Text only; whoever
// prints it decides where.
package view

import (
	"fmt"

	"bookend/internal/gpu"
)

const (
	nameWidth = 48  // of names from outside in a line
	textWidth = 400 // of what is quoted
	timestamp = "2006-01-02 15:04:05"
)

// Figure words bytes in MiB, or says that they are unknown.
func Figure(f gpu.Figure) string {
	if !f.Known() {
		return mib(nil)
	}
	return mib(&f.Bytes)
}

// mib is Figure for what a document has: null where it is unknown.
func mib(bytes *uint64) string {
	if bytes == nil {
		return "unknown"
	}
	return fmt.Sprintf("%d MiB", *bytes>>20)
}
