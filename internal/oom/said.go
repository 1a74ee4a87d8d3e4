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
func (st statement) around() string { return st.before() + st.text + st.after() }

// clause is what the statement itself says, without what stands before its last colon.
func (st statement) clause() string {
	return st.around()[strings.LastIndex(st.before(), ": ")+1:]
}

// reported tells a message from a line that only names it: source, a comment, help, a denial, a guess, a list of
// what is searched for.
func (st statement) reported() bool {
	before, after := st.before(), st.after()
	source := st.pos <= maxBefore && isSource(st.line.lower, before) ||
		st.facts.code < min(st.pos, maxBefore)
	if sizedTorch().MatchString(after) { // no source and few texts have its figures
		return !source || strings.Contains(before, "error(") && !strings.HasPrefix(before, "#") &&
			!strings.HasPrefix(before, "raise")
	}
	return !source && st.formed(before, after) && !supposed(before) && !st.discussed(after) &&
		!inQuotes(before, after)
}

var (
	sizedTorch = lazily(`^\. tried to allocate [\d.]+ ?(?:[kmg]i?b|bytes)\b`) // PyTorch's with its figures
	isCause    = lazily(`:[ (]*$`)
)

// formed: the sign is a whole name, number or end where it has to be.
func (st statement) formed(before, after string) bool {
	switch {
	case st.coded:
		return (after == "" || !isAlnum(after[0]) && after[0] != '.') && runtimes().MatchString(st.around())
	case st.head:
		return after == "" || after[0] == ':' || after[0] == '('
	case st.text == Segment: // and not what was forbidden: a noexec mount, SELinux
		return strings.HasSuffix(before, ": ") && (after == "" || strings.HasPrefix(after, ": cannot allocate memory"))
	case st.memory:
		return st.facts.has[isMemory] && !st.facts.has[isOther]
	case st.fails:
		return strings.Contains(after, "failed")
	case st.ends:
		return isCause().MatchString(before) && (after == "" || strings.IndexByte(":')", after[0]) >= 0)
	}
	return after == "" || !isAlnum(after[0]) || !isAlnum(st.text[len(st.text)-1]) || strings.HasSuffix(st.text, "alloc")
}

// runtimes: an error's number is CUDA's or HIP's, and not a program's exit status.
var runtimes = lazily(`cuda (?:error|failure|runtime|driver|initialization)|cudaerror|cudasuccess|` +
	`hip ?error|alloc|cufft|curesult`)

// near: one of so many lines above the statement (step -1) or below it has such a word.
func (st statement) near(step, count int, c class) bool {
	for l := range st.s.near(st.at, step, count) {
		if l.facts().has[c] {
			return true
		}
	}
	return false
}

// The words and marks with which lines of programs, scripts, shells' traces, comments and lists begin.
var (
	sourceMark = lazily(`^(?:#|//|/\*|\* |'|\+ |<<|--|>>>|\$ )`)
	sourceWord = lazily(`^(?:(?:if|elif|except|catch|raise|throw|return|assert|def|import|echo|printf?|` +
		`const|static|#define|grep|hint|tip|note|usage|example):*(?: |$)|[^ ]* = |\d[.)] )`)
	maybeSource = lazily(`^(?:else|class|from|case|try|when|for|while|see):*(?: |$)(.*)`)
)

func isSource(lower, before string) bool {
	words := maybeSource().FindStringSubmatch(before)
	return sourceMark().MatchString(lower) || sourceWord().MatchString(before) ||
		words != nil && !strings.Contains(words[1], ": ")
}

// opensValue: what is quoted is a value in a log's field, in JSON, an exception as Python shows it, or a name.
var (
	opensValue = lazily(`=.* (?:msg|err|error|message|reason|cause|exception|detail)=$|\{".*":$|` +
		`named$|[a-z0-9]error\(?$`)
	// opensCause: an error's number or name, or a colon, stands right before the quotes.
	opensCause = lazily(`(?:[:"\d]|error|failure|code|instance of)$`)
)

// inQuotes: the sign stands in quotes of a source or a person.
func inQuotes(before, after string) bool {
	for _, quote := range []string{"`", `"`, "'"} {
		at := strings.LastIndex(before, quote)
		if at < 0 || strings.Count(before, quote)%2 == 0 || !strings.Contains(after, quote) {
			continue
		}
		opened, inside := strings.TrimRight(before[:at], " "), before[at+1:]
		apostrophe := quote == "'" && inside != "" && !strings.HasPrefix(after, "'") && !strings.HasSuffix(opened, "(")
		isValue := opensValue().MatchString(opened) ||
			strings.Trim(inside, `"`) == "" && opensCause().MatchString(opened)
		if !apostrophe && !isValue {
			return true
		}
	}
	return false
}

// Words before a sign that make it a denial, a guess, advice or a definition.
var (
	supposing = lazily(`^(?:we|i|they) | (?:of|or)$`)
	supposes  = lazily(`(?:^|[ ,()"'*])(?:(?:no|without|if|any|avoid|avoids|avoiding|except|catch|catching|` +
		`catches|never|prevent|prevents|preventing|import|may|might|would|whether|unless|usually|sometimes|often|` +
		`typically|simulated?|likely|will|against|expected|earlier|previous|i|we|getting|get|fix|fixes|fixed|` +
		`handles?|handled|detects?)(?:[ ,()"'*]|$)|because it |when it |(?:is|was) an? |` +
		`(?:can|could) +(?:[^n ]|n[^o]|no[^t]))`)
	whenDoing = lazily(`(?:^| )when ([^ ]+)`) // programs say what was being done
)

func supposed(before string) bool {
	before = strings.TrimRight(before, ": (")
	clause := before[strings.LastIndex(before, ": ")+1:]
	clause = clause[max(strings.LastIndex(clause, ". "), strings.LastIndex(clause, "? "))+1:]
	for _, words := range whenDoing().FindAllStringSubmatch(clause, -1) {
		if !strings.HasSuffix(words[1], "ing") {
			return true
		}
	}
	return supposing().MatchString(before) || supposes().MatchString(clause)
}

// Words and marks after a sign that make it a subject, a counter, or a part of a source.
var (
	discusses = lazily(`^(?:\?| 0 |\|| \| |: the api call|[` + "`" + `{\\]| = | \{| ==|=\d|;$)|` +
		`^ *(?:[^ ]*[^ .:,] +){0,2}(?:errors|issues|problems|conditions|exceptions|means|indicates|occurs|happens|` +
		`handling|or|may|might|is|so|will|raised|thrown|returned)[.,:;)]*(?: |$)`)
	valued = lazily(`^:? *["'#]`)
)

func (st statement) discussed(after string) bool {
	return discusses().MatchString(after[:min(len(after), 60)]) ||
		(st.head || strings.HasSuffix(st.text, ": ")) && valued().MatchString(after)
}

// failed: a word for an error on the line, or a size that was wanted.
func (st statement) failed() bool {
	if st.facts.has[isError] || st.line.facts().has[isError] {
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
	return st.facts.has[goesOn] || st.near(1, linesBelow+1, goesOn)
}
