package oom

import (
	"slices"
	"strings"
)

// How much of a line around a sign is looked at.
const (
	maxBefore = 300 // bytes
	maxAfter  = 700
	maxRead   = maxBefore + maxAfter
)

// statement is a sign in its place.
type statement struct {
	hit
	s     *scan
	at    int
	line  *line
	facts *facts // of the line's part around the sign
}

func (st statement) before() string {
	return st.line.lower[max(0, st.pos-maxBefore):st.pos]
}

func (st statement) after() string {
	return st.line.lower[st.end():min(len(st.line.lower), st.end()+maxAfter)]
}

func (st statement) end() int { return st.pos + len(st.text) }

// read finds the evidence around the sign.
func (st statement) read() *facts {
	if len(st.line.lower) <= maxRead {
		return st.line.facts()
	}
	f := evidenceIn(st.around())
	return &f
}

// around is the line's part that may say more of the sign.
func (st statement) around() string {
	return st.line.lower[max(0, st.pos-maxBefore):min(len(st.line.lower), st.end()+maxAfter)]
}

// clause is what the statement itself says, without what stands before its last colon.
func (st statement) clause() string {
	begin := st.pos - len(st.before())
	return st.line.lower[begin+strings.LastIndex(st.before(), ": ")+1 : min(len(st.line.lower), st.end()+maxAfter)]
}

// reported tells a message from a line that only names it: source, a comment, help, a denial, a guess, a list of
// what is searched for.
func (st statement) reported() bool {
	before, after := st.before(), st.after()
	source := st.line.isEcho() || st.pos <= maxBefore && isSource(st.line.lower, before) ||
		st.facts.code < min(st.pos, maxBefore)
	if sizedTorch(after) { // no source and few texts have its figures
		return !source || strings.Contains(before, "error(") && !strings.HasPrefix(before, "#") &&
			!strings.HasPrefix(before, "raise")
	}
	return !source && st.formed(before, after) && !supposed(before) && !st.discussed(after) &&
		!inQuotes(before, after) &&
		(st.coded || !compared(before)) && !(st.weak && isSubject(before))
}

// isSubject: an article makes it a subject.
func isSubject(before string) bool {
	return strings.HasSuffix(before, " the ") || strings.HasSuffix(before, " a ") || strings.HasSuffix(before, " an ")
}

// formed: the sign is a whole name, number or end where it has to be.
func (st statement) formed(before, after string) bool {
	switch {
	case st.coded:
		return (after == "" || !isAlnum(after[0]) && after[0] != '.') && st.ofRuntime()
	case st.head:
		name := before[strings.LastIndexByte(before, ' ')+1:]
		return st.kind == Device && strings.HasPrefix(after, ": ") ||
			(after == "" || after[0] == ':' || after[0] == '(') &&
				(name == before || endsClause(before[:len(before)-len(name)]))
	case st.text == segment: // and not what was forbidden: a noexec mount, SELinux
		return strings.HasSuffix(before, ": ") && (after == "" || strings.HasPrefix(after, ": cannot allocate memory"))
	case st.memory:
		return st.ofMemory() && !st.facts.has[isOther]
	case st.fails:
		return strings.Contains(after, "failed")
	case st.ends:
		cause := strings.HasSuffix(strings.TrimRight(before, " ("), ":")
		return cause && (after == "" || strings.IndexByte(":')", after[0]) >= 0)
	}
	return after == "" || !isAlnum(after[0]) || !isAlnum(st.text[len(st.text)-1]) || strings.HasSuffix(st.text, "alloc")
}

// endsClause: an exception's name may follow.
func endsClause(before string) bool {
	before = strings.TrimRight(before, " *")
	return strings.HasSuffix(before, ":") || strings.HasSuffix(before, " -")
}

// ofMemory: a word for memory, or a size of some, is on the line or on those below it.
func (st statement) ofMemory() bool {
	if st.facts.has[isMemory] {
		return true
	}
	for l := range st.s.near(st.at, 1, linesBelow) {
		if l.facts().has[isMemory] {
			return true
		}
	}
	return false
}

// ofRuntime: the error's number is CUDA's or HIP's, and not a program's exit status.
func (st statement) ofRuntime() bool {
	around := st.around()
	return slices.ContainsFunc(runtimes, func(words string) bool { return strings.Contains(around, words) })
}

var runtimes = []string{
	"cuda error", "cudaerror", "cuda failure", "cudasuccess", "cuda runtime", "cuda driver", "cuda initialization",
	"hip error", "hiperror",
	"alloc", "cufft", "curesult",
}

// isSource: the words with which lines of programs, scripts, shells' traces and comments begin.
func isSource(lower, before string) bool {
	if lower != "" && strings.IndexByte("#/*'+<->$", lower[0]) >= 0 {
		for _, mark := range []string{"#", "//", "/*", "* ", "'", "+ ", "<<", "--", ">>>", "$ "} {
			if strings.HasPrefix(lower, mark) {
				return true
			}
		}
	}
	first, rest, _ := strings.Cut(before, " ")
	switch strings.TrimRight(first, ":") {
	case "if", "elif", "except", "catch", "raise", "throw", "return", "assert", "def", "import", "echo", "print",
		"printf", "const", "static",
		"#define", "grep", "hint", "tip", "note", "usage", "example":
		return true
	case "else", "class", "from", "case", "try", "when", "for", "while", "see":
		if !strings.Contains(rest, ": ") {
			return true
		}
	}
	// a list
	return strings.HasPrefix(rest, "= ") || len(first) == 2 && isDigit(first[0]) && (first[1] == '.' || first[1] == ')')
}

// inQuotes: the sign stands in quotes of a source or a person. In a log's field, in JSON, and behind an error's
// number it does not.
func inQuotes(before, after string) bool {
	for _, quote := range []string{"`", `"`, "'"} {
		at := strings.LastIndex(before, quote)
		if at < 0 || strings.Count(before, quote)%2 == 0 || !strings.Contains(after, quote) {
			continue
		}
		opened, inside := strings.TrimRight(before[:at], " "), before[at+1:]
		// an apostrophe
		if quote == "'" && inside != "" && !strings.HasPrefix(after, "'") && !strings.HasSuffix(opened, "(") {
			continue
		}
		if !isField(opened) && !(strings.Trim(inside, `"`) == "" && isCause(opened)) &&
			!strings.HasSuffix(opened, "named") &&
			!isException(strings.TrimSuffix(opened, "(")) {
			return true
		}
	}
	return false
}

// isException: the name of one, as Python shows it to itself: XGBoostError('...').
func isException(opened string) bool {
	name, found := strings.CutSuffix(opened, "error")
	return found && name != "" && isAlnum(name[len(name)-1])
}

// isCause: an error's number or name, or a colon, opens the quotes.
func isCause(opened string) bool {
	for _, end := range []string{":", "error", "failure", "code", "instance of", `"`} {
		if strings.HasSuffix(opened, end) {
			return true
		}
	}
	return opened != "" && isDigit(opened[len(opened)-1])
}

// compared: the program's source compares with the sign.
func compared(before string) bool {
	before = strings.TrimRight(before, " ")
	return strings.HasSuffix(before, "==") || strings.HasSuffix(before, "!=")
}

// sizedTorch: PyTorch's message with its figures.
func sizedTorch(after string) bool {
	rest, ok := strings.CutPrefix(after, ". tried to allocate ")
	if !ok {
		return false
	}
	_, _, unit := sized(rest)
	return unit
}

// isField: what opens a quoted value: a field of a log (msg="...), or of JSON.
func isField(before string) bool {
	before = strings.TrimRight(before, " ")
	if key, ok := strings.CutSuffix(before, "="); ok {
		switch key[strings.LastIndexByte(key, ' ')+1:] {
		case "msg", "err", "error", "message", "reason", "cause", "exception", "detail":
			return strings.Contains(key, "=") // of several
		}
		return false
	}
	return strings.HasSuffix(before, `":`) && strings.Contains(before, `{"`)
}

// supposed: the words before make it a denial, a guess or advice.
func supposed(before string) bool {
	if before = strings.TrimRight(before, ": ("); before == "" {
		return false
	}
	for _, person := range []string{"we ", "i ", "they "} {
		if strings.HasPrefix(before, person) {
			return true
		}
	}
	if strings.HasSuffix(before, " of") || strings.HasSuffix(before, " or") {
		return true
	}
	clause := before[strings.LastIndex(before, ": ")+1:]
	clause = clause[max(strings.LastIndex(clause, ". "), strings.LastIndex(clause, "? "))+1:]
	previous := ""
	for word := range strings.FieldsSeq(clause) {
		switch previous {
		case "fix", "fixes", "fixed", "handle", "handles", "handled", "detect", "detects":
			return true
		case "because", "when": // documentation; programs say what failed, or what was being done
			if word == "it" || previous == "when" && !strings.HasSuffix(word, "ing") {
				return true
			}
		case "is", "was": // a definition
			if word == "a" || word == "an" {
				return true
			}
		case "can", "could":
			if word != "not" {
				return true
			}
		}
		previous = strings.Trim(word, `,()"'*`)
		switch previous {
		case "no", "without", "if", "any", "avoid", "avoids", "avoiding", "except", "catch", "catching", "catches",
			"never", "prevent", "prevents",
			"preventing", "import", "may", "might", "would", "whether", "unless", "usually", "sometimes", "often",
			"typically", "simulate", "simulated",
			"likely", "will", "against", "expected", "earlier", "previous", "i", "we", "getting", "get":
			return true
		}
	}
	switch previous { // a name of what is done about it
	case "fix", "fixes", "fixed", "handle", "handles", "handled", "detect", "detects":
		return true
	}
	return false
}

// discussed: the words after make it a subject, or the marks after it are a source's.
func (st statement) discussed(after string) bool {
	if after == "" {
		return false
	}
	for _, mark := range []string{"?", " 0 ", "|", " | ", ": the api call", "`", "{", "\\", " = ", " {", " =="} {
		if strings.HasPrefix(after, mark) {
			return true
		}
	}
	if len(after) > 1 && after[0] == '=' && isDigit(after[1]) { // a counter, a list of codes
		return true
	}
	value := strings.TrimLeft(strings.TrimPrefix(after, ":"), " ")
	if after == ";" || value != "" && strings.IndexByte("\"'#", value[0]) >= 0 &&
		(st.head || strings.HasSuffix(st.text, ": ")) {
		return true
	}
	words := strings.Fields(after[:min(len(after), 60)])
	for i := range min(3, len(words)) {
		switch strings.TrimRight(words[i], ".,:;)") {
		case "errors", "issues", "problems", "conditions", "exceptions", "means", "indicates", "occurs", "happens",
			"handling", "or", "may", "might",
			"is", "so", "will", "raised", "thrown", "returned":
			return true
		}
		if strings.IndexByte(".:,", words[i][len(words[i])-1]) >= 0 {
			break
		}
	}
	return false
}

// failed: a word for an error on the line, or a size that was wanted.
func (st statement) failed() bool {
	if st.facts.has[isError] || st.line.isError() {
		return true
	}
	if strings.Contains(st.before(), "warn") {
		return false
	}
	text, _, _ := strings.Cut(st.whole(), ". ") // then comes advice
	sizes := sizesIn(st.line.body[max(0, st.pos-maxBefore):st.pos] + text)
	return slices.ContainsFunc(sizes, func(f figure) bool { return f.of == asked })
}

// survived: the program says that it goes on, on the same line or right after it.
func (st statement) survived() bool {
	if st.facts.has[goesOn] {
		return true
	}
	for l := range st.s.near(st.at, 1, linesBelow+1) {
		if l.facts().has[goesOn] {
			return true
		}
	}
	return false
}
