// Package docs holds the pages that a program shows parts of.
package docs

import _ "embed" // of the page

// Config is config.md: a table of every key with its default and its meaning.
//
//go:embed config.md
var Config string
