package view

import "strings"

// narrowest is the least width that lines are broken at: less is no terminal to read on.
const narrowest = 40

// Fold breaks a line at spaces where it is wider than width; what follows stands hang columns in.
func Fold(line string, width, hang int) string {
	width = max(width, narrowest)
	if seen(line) <= width {
		return line
	}
	var out strings.Builder
	at, gap := 0, len(line)-len(strings.TrimLeft(line, " "))
	for _, word := range strings.Split(strings.TrimLeft(line, " "), " ") {
		if word == "" { // several spaces: columns
			gap++
			continue
		}
		if at > hang && at+gap+seen(word) > width {
			out.WriteString("\n" + strings.Repeat(" ", hang))
			at, gap = hang, 0
		}
		out.WriteString(strings.Repeat(" ", gap) + word)
		at, gap = at+gap+seen(word), 1
	}
	return out.String()
}

// hangOf is where the text of a line stands: in the last column that begins in the first three quarters of the width,
// or else a little further in than the line itself.
func hangOf(line string, width int) int {
	var plain strings.Builder
	for rest := line; rest != ""; {
		var text string
		text, _, rest = cutColour(rest)
		plain.WriteString(text)
	}
	text := plain.String()
	indent := len(text) - len(strings.TrimLeft(text, " "))
	hang := min(indent+4, narrowest/2)
	for at := indent + 1; at+2 < min(len(text), width*3/4); at++ {
		if text[at-1] == ' ' && text[at] == ' ' && text[at+1] != ' ' {
			hang = at + 1
		}
	}
	return hang
}
