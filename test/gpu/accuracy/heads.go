package main

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed heads.md
var heads string

// head is what stands above a page, a section or a table of the documents: in heads.md, under "=== NAME".
func head(name string) string {
	_, after, found := strings.Cut(heads, "=== "+name+"\n")
	if !found {
		panic(fmt.Sprintf("heads.md has no %q", name))
	}
	text, _, _ := strings.Cut(after, "=== ")
	return text
}

// under are rows below what stands above them, nothing without any.
func under(name, rows string) string {
	if rows == "" {
		return ""
	}
	return head(name) + rows
}
