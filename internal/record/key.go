package record

import (
	"strings"

	"bookend/internal/slurm"
)

// ValidKey reports whether a text is the key of a run, and may be part of a path.
func ValidKey(s string) bool {
	if slurm.ValidSLUID(s) {
		return true
	}
	if len(s) < 2 || len(s) > 20 || s[0] != 't' && s[0] != 'w' {
		return false
	}
	return strings.Trim(s[1:], "0123456789") == ""
}
