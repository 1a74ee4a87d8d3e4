package page

import "strings"

// somebody stands for a user's name.
const somebody = "(user)"

// hide puts "(user)" for each of the names where it stands as a word: in paths, messages and names of processes. It
// takes the raw text: one that was cut may end in a part of a name. Of names that begin alike the longer must come
// first.
func hide(text string, names []string) string {
	for _, name := range names {
		if name == "" || name == "root" {
			continue
		}
		for from := 0; ; {
			i := strings.Index(text[from:], name)
			if i < 0 {
				break
			}
			i += from
			end := i + len(name)
			if from = end; border(text, i-1) && border(text, end) {
				text, from = text[:i]+somebody+text[end:], i+len(somebody)
			}
		}
	}
	return text
}

// border reports that no letter or digit stands there.
func border(text string, i int) bool {
	if i < 0 || i >= len(text) {
		return true
	}
	c := text[i]
	return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
}
