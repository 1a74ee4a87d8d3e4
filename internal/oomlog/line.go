package oomlog

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

type line struct {
	body   string // without the prefixes of loggers, srun --label and launchers
	lower  string // body in lower case
	head   string // what the prefixes were, in lower case; may be cut
	stream string // identifies the process by its prefixes
	pid    *int   // of the process, if a launcher's prefix has it
	rank   *int   // of the process, if a launcher's prefix has it
	facts  facts  // of the body, with what its prefixes add
	quoted bool   // by a mail, or in a fence of a document
}

// isLevel matches a logger's level for errors.
var isLevel = lazily(`\b(?:error|critical|fatal|morecore|[ef](?:\d{4})?)\b`)

// split returns the lines of an output's end. It drops a first line that may be truncated: the rest could negate it.
func split(tail []byte) []line {
	whole := len(tail) < MaxTail
	text := plain(tail[max(0, len(tail)-MaxTail):])
	if !whole {
		_, text, _ = strings.Cut(text, "\n")
	}
	var lines []line
	within := false // a JSON list of a traceback's lines
	for text := range strings.SplitSeq(text, "\n") {
		begins := strings.Contains(text, "Traceback (most recent call last)")
		item := listItem().FindStringSubmatch(text)
		if within = item != nil && (within || begins); within {
			text = item[1]
		} else if begins {
			text = listMarks.Replace(text)
		}
		// JSON, a dictionary as Python prints it, or its bytes with a line break
		quoted := within || strings.Contains(text, `{"`) || strings.Contains(text, "{'") ||
			strings.Contains(text, `msg="`) || strings.Contains(text, `\n`) && pythonBytes().MatchString(text)
		if quoted && !tableRow().MatchString(text) && !sourceMark().MatchString(strings.TrimSpace(text)) {
			text = escapedColour().ReplaceAllString(escapes.Replace(text), "")
		}
		for part := range strings.SplitSeq(text, "\n") {
			lines = append(lines, newLine(part))
		}
	}
	speaks := func(l line) bool { return len(l.facts.hits) > 0 || slurmLine().MatchString(l.lower) }
	if slices.ContainsFunc(lines, speaks) {
		markQuoted(lines)
		markFenced(lines)
	}
	return lines
}

var (
	pythonBytes   = lazily(`(?:^|[ =(\[,:])b["'].*\\n|\{ \w+: ".*\\n`)
	escapedColour = lazily(`\\(?:u001b|x1b)\[[\d;]*m`)
	listItem      = lazily(`^ *\[? *"(.*)"[,\]]? *$`)
	listMarks     = strings.NewReplacer(`", "`, "\n", `","`, "\n", `["`, "\n", `"]`, "\n",
		`', '`, "\n", `['`, "\n", `']`, "\n")
)

var escapes = strings.NewReplacer(`\\n`, "\n", `\n`, "\n", `\t`, " ", `\"`, `"`, `\'`, "'")

const maxFence, maxShown = 60, 10 // lines of a quoted text in a document, and of examples below its sentence

var (
	fence    = lazily("^(?:```|~~~)[`~ ]*(\\w*)$|^\\{(?:noformat|code)[^}]*\\}$|^\\[/?code\\]$|^</?(?:pre|code)>$")
	mailHead = lazily(`^(?:Subject|From|Message-ID): `)
)

// markQuoted marks what a mail quotes, what a document shows as an example, and what a person asks about.
func markQuoted(lines []line) {
	mail, doc, hit := nowhere, nowhere, nowhere // the last line of each kind
	for i, l := range lines {
		if strings.HasSuffix(l.body, " wrote:") || mailHead().MatchString(l.body) {
			mail = i
		}
		if len(l.facts.hits) > 0 {
			hit = i
		}
		if slurmLine().MatchString(l.lower) { // no document's example
			doc = nowhere
		}
		text := map[bool]string{true: "i "}[l.head == "i "] + l.lower // a person, no logger's level
		prose := vocabulary().written["prose"]().MatchString(l.lower)
		if prose || text != "" && introduces(text) {
			doc = i
		} else if hit < i && i-hit <= linesAbove && l.facts.has[isAsked] {
			for j := max(0, i-linesAbove); j < i; j++ {
				lines[j].quoted = lines[j].quoted || !slurmLine().MatchString(lines[j].lower)
			}
		}
		inMail := strings.HasPrefix(l.head, "> ") && i > mail && i-mail <= maxFence
		lines[i].quoted = inMail || i > doc && i-doc <= maxShown || prose
	}
}

// markFenced marks the lines between two fences of a document. A fence that names a language opens, even if one was
// open: the end of an output may begin within a fenced text.
func markFenced(lines []line) {
	open := nowhere
	for i, l := range lines {
		words := fence().FindStringSubmatch(l.body)
		closes := words != nil && words[1] == "" && i > open && i-open <= maxFence
		for ; closes && open < i; open++ {
			lines[open].quoted = true
		}
		if closes {
			open = nowhere
		} else if words != nil {
			open = i
		}
	}
}

var ofErrors = lazily(`err|fail|crash|memor|oom|messag|problem|issue|kill|abort|exception|trace|bug`)

// introduces reports a sentence or title of a document that examples follow.
func introduces(text string) bool {
	const maxTitle = 80
	const words = " with is are or like as this print prints get got say says error errors message messages "
	opens := strings.ContainsAny(text[len(text)-1:], ":.") || strings.ContainsAny(text[:1], ".*<:") ||
		strings.Contains(words, text[strings.LastIndexByte(text, ' ')+1:]+" ")
	opens = opens && (strings.ContainsAny(text[:1], ".*<:") || ofErrors().MatchString(text))
	return opens && len(text) <= maxBefore && vocabulary().written["introduction"]().MatchString(text) ||
		len(text) <= maxTitle && vocabulary().written["title"]().MatchString(text)
}

func newLine(text string) line {
	trimmed := strings.TrimSpace(text)
	l := line{body: trimmed}
	for range maxPrefixes {
		if !l.prefix() {
			break
		}
	}
	before := text[:strings.Index(text, trimmed)+len(trimmed)-len(l.body)]
	l.lower = strings.ToLower(l.body)
	l.facts = evidenceIn(l.lower)
	l.head = strings.ToLower(before[:min(len(before), maxBefore)])
	if l.head != "" {
		f := evidenceIn(l.head)
		l.facts.speaker = min(l.facts.speaker, f.speaker)
		l.facts.program = min(l.facts.program, f.program)
		l.facts.has[goesOn] = l.facts.has[goesOn] || f.has[goesOn]
		l.facts.has[isGPU] = l.facts.has[isGPU] || f.has[isGPU]
		l.facts.has[isHost] = l.facts.has[isHost] || strings.Contains(l.head, "[morecore]")
		l.facts.has[isError] = l.facts.has[isError] || isLevel().MatchString(l.head)
	}
	return l
}

var colour = lazily(`\x1b\[[^\n\r@-~]*[@-~]?`)

// pattern is a regular expression that is compiled at its first use, because hooks start for every job.
type pattern func() *regexp.Regexp

func lazily(text string) pattern {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// plain removes colours and replaces all but printable ASCII by spaces. Each state of a progress bar becomes a line.
func plain(raw []byte) string {
	text := strings.ReplaceAll(string(colour().ReplaceAll(raw, nil)), "\r\n", "\n")
	out := []byte(text)
	for i, c := range out {
		if c == '\r' {
			out[i] = '\n'
		} else if c != '\n' && (c < 0x20 || c > 0x7e) {
			out[i] = ' '
		}
	}
	return string(out)
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e })
}

func (l line) isOurs() bool {
	return strings.HasPrefix(l.body, "| bookend:") || strings.HasPrefix(l.body, "bookend:")
}

// maxLead is how much text before the message is kept if the line is too long to be shown.
const maxLead = 40

func shown(body string, i int) string {
	if len(body) > MaxLine {
		body = body[max(0, i-maxLead):]
	}
	const dots = "..."
	if len(body) > MaxLine {
		body = body[:MaxLine-len(dots)] + dots
	}
	return body
}

func number(digits string, most int) *int {
	n, err := strconv.Atoi(digits)
	if err != nil || n > most {
		return nil
	}
	return &n
}

func isAlnum(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'z' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// maxPrefixes limits the number of prefixes of a line.
const maxPrefixes = 8

// prefixes match what launchers, loggers and consoles write before a line. The group is the launcher's process name.
var prefixes = []pattern{
	// "[rank0]:", "[default0]:", "[1,3]<stderr>:" of mpirun, "[2026-01-02 03:04:05]", "[ERROR]"
	lazily(`^\[([^]]*)\](?:<std\w*>)?:?`),
	lazily(`^\(([^)]*pid=[^)]*)\)`), // "(VllmWorker rank=1 pid=4711)"
	lazily(`^(\d+): `),              // srun --label
	// loguru's "10:00:00 | ERROR | trainer:run:7 - "
	lazily(`^(?:[\d:.,]{8,} )?\| +[A-Z]+ +\| (?:[\w.:<>]+ [|-] )?()`),
	lazily(`^> ()`),        // as a mail or a shell's trace quotes
	lazily(`^##\[\w+\]()`), // of a workflow's runner
	lazily(`^(?:\d[\d.,+TZ]*[:/-][\d:/.,+TZ-]{2,}|-) ()`),    // dates and times
	lazily(`^[EWFI]\d{4} [\d:.]{8,} +\d+ [\w./-]+:\d+\] ()`), // of absl and glog
	lazily(`^(?:[\w.]+ - )?(?:INFO|WARN|WARNING|ERROR|CRITICAL|FATAL|[EWFI])` + // of Python's loggers
		`(?::[\w.]+:| - |:? (?:(?:__main__|[a-z0-9_]+(?:\.[a-z0-9_]+)+): )?)()`),
	// the journal's "Mar 01 10:00:00 gpu12 train[4711]: "
	lazily(`^(?:[A-Za-z]{3,5} [ \d]\d [\d:]{8} [\w.-]+ ([\w./-]+(?:\[\d{1,7}\])?)|` +
		`[\w.-]+ ([\w./-]+\[\d{1,7}\])): `),
	lazily(`^(?:(?:stdout|stderr)(?: [FP]|[:>])|wandb:|[a-z][\w.-]* +\|) ()`), // of a container's runtime, of W&B
	// a log of JSON, or of fields
	lazily(`^\{((?:"\w+": ?"?[^"{}]*"?, ?)*)"(?:log|msg|message|error|text|exc_info|exception)": ?"|` +
		`^((?:\w+=(?:"[^"]*"|\S+) )+)msg="`),
	lazily(`^(?:node|[a-z][a-z.-]*\d[\w.-]*): ()`), // a node, as pdsh and mpiexec name it
}

const srunLabel = 2 // its index in prefixes; those before it are in brackets

var (
	pidIn  = lazily(`(?:pid=|^[\w./-]+\[)(\d{1,7})\b`)
	rankIn = lazily(`(?i)\brank["=: ]*(\d{1,7})\b|^\d+,(\d{1,7})$`)
	// TensorRT's "2: [file.cpp::function::7]" begins with an error number
	errorNumber = lazily(`^\[[^]]*::`)
	// valueEnd matches what follows a value in quotes: other fields
	valueEnd = lazily(`"?(?:, ?"\w+": ?"?[^"{}]*"?)*\}*$`)
)

// prefix removes one prefix and reads its process. The innermost rank counts; torchrun's and mpiexec's labels are none.
func (l *line) prefix() bool {
	for i, form := range prefixes {
		words := form().FindStringSubmatch(l.body)
		if words == nil {
			continue
		}
		name, rest := strings.Join(words[1:], ""), strings.TrimSpace(l.body[len(words[0]):])
		if strings.HasSuffix(words[0], `"`) { // a value in quotes
			rest = valueEnd().ReplaceAllString(rest, "")
		}
		label, bracket := i == srunLabel, i < srunLabel
		if bracket && strings.TrimLeft(rest, ": ") == "" || label && errorNumber().MatchString(rest) {
			continue
		}
		rank := rankIn().FindStringSubmatch(name)
		if pid := pidIn().FindStringSubmatch(name); pid != nil {
			l.pid = number(pid[1], maxPID)
		} else if !label && rank == nil && !strings.HasPrefix(name, "default") {
			name = ""
		}
		switch {
		case label:
			l.rank = cmp.Or(number(name, maxRank), l.rank)
		case rank != nil:
			l.rank = cmp.Or(number(rank[1]+rank[2], maxRank), l.rank)
		}
		l.body = rest
		if name != "" {
			l.stream += name + " "
		}
		return true
	}
	return false
}
