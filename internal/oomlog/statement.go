package oomlog

import (
	"slices"
	"strings"

	"bookend/internal/record"
)

// How much text around a sign is examined.
const (
	maxBefore = 300 // bytes
	maxAfter  = 700
	maxRead   = maxBefore + maxAfter
)

type statement struct {
	hit
	*scan
	line                  *line
	facts                 *facts // of the text around the sign, which may be only a part of the line
	before, after, around string
}

func (s *scan) statement(l *line, h hit) statement {
	end := h.pos + len(h.text)
	st := statement{hit: h, scan: s, line: l, facts: &l.facts, before: l.lower[max(0, h.pos-maxBefore):h.pos],
		after: l.lower[end:min(len(l.lower), end+maxAfter)]}
	split := h.is("memory") && st.after == "" && s.at+1 < len(s.lines) // by a console's width
	if split {
		st.after = " " + s.lines[s.at+1].lower[:min(len(s.lines[s.at+1].lower), maxAfter)]
	}
	st.around = st.before + h.text + st.after
	if split || len(l.lower) > maxRead {
		st.facts = new(evidenceIn(st.around))
	}
	return st
}

// reported tells a message from a line that only mentions it: source, comment, help, denial, guess or a list of words.
func (st statement) reported() bool {
	before, after := st.before, st.after
	marked := st.line.lower
	if st.is("hash") || hashLogged().MatchString(marked) {
		marked = strings.TrimLeft(marked, "#* ")
	}
	raised := strings.HasPrefix(marked, "raise ") && st.isNear(-1, 1, isFrame)
	source := !raised && (sourceMark().MatchString(marked) || st.pos <= maxBefore && sourceWord().MatchString(before) ||
		st.facts.code < min(st.pos, maxBefore))
	if tableRow().MatchString(st.line.body) || st.line.facts.has[isPassed] && testPassed().MatchString(st.line.lower) ||
		strings.Count(before, "`")%2 > 0 && strings.Contains(after, "`") {
		return false
	}
	if sizedTorch().MatchString(after) { // source code and most other texts do not have its figures
		return !exemplifies().MatchString(before) && (!source || strings.Contains(before, "error(") &&
			!strings.HasPrefix(before, "#") && !strings.HasPrefix(before, "raise"))
	}
	raises := strings.HasPrefix(after, ": the api call") && raisedAs().MatchString(before)
	return !source && st.isComplete(before, after) && !supposed(before) && !inQuotes(before, after) &&
		(raises || !discusses().MatchString(after[:min(len(after), 60)]))
}

var (
	exemplifies = lazily(`(?:message is|for example|for instance|e\.g\.|such as|like),? ["'(]*` +
		`(?:[\w.]+: )?(?:cuda |hip )?$`)
	sizedTorch = lazily(`^\. tried to allocate [\d.]+ ?(?:[kmg]i?b|bytes)\b`) // PyTorch's, with its figures
	cudaLine   = lazily(`^(?:unit )?\S*(?:\.cuh?|cuda|gpu)\S*(?: at line |:)\d`)
	raisedAs   = lazily(`(?:error|exception): $`)
	isCause    = lazily(`:[ (]*$`)
)

// isComplete reports whether the sign is complete: a whole name or number, and at the end if it has to be.
func (st statement) isComplete(before, after string) bool {
	switch {
	case st.is("coded"):
		return (after == "" || !isAlnum(after[0]) && after[0] != '.') && runtimes().MatchString(st.around)
	case st.is("named"):
		return (after == "" || !isAlnum(after[0]) && after[0] != '_') &&
			(strings.HasPrefix(after, ":") || evidenceIn(before).has[isError] || givesName().MatchString(before))
	case st.is("head"):
		return after == "" || after[0] == ':' || after[0] == '('
	case st.text == record.SegmentFailed: // but not for what was forbidden: a noexec mount, SELinux
		return strings.HasSuffix(before, ": ") && (after == "" || strings.HasPrefix(after, ": cannot allocate memory"))
	case st.is("allowed"):
		return !strings.Contains(after, "denied") && !st.broken()
	case st.is("memory"):
		return st.facts.has[isMemory] && !st.facts.has[isOther] && !st.broken() &&
			!(st.kind == record.KindDevice && strings.HasSuffix(st.text, " failed") && otherCode().MatchString(after))
	case st.is("lined"):
		return cudaLine().MatchString(after)
	case st.is("fails"):
		clause, _, _ := strings.Cut(strings.ReplaceAll(after[:min(len(after), 99)], ";", ","), ", ")
		return strings.Contains(clause, "failed")
	case st.is("ends"):
		return isCause().MatchString(st.line.head+before) && (after == "" || strings.IndexByte(":')", after[0]) >= 0)
	}
	return after == "" || !isAlnum(after[0]) || !isAlnum(st.text[len(st.text)-1]) || strings.HasSuffix(st.text, "alloc")
}

// otherCode matches the number or the name of an error that is no shortage, after a call that failed.
var otherCode = lazily(`^ (?:calls|count|times):? *0\b|` +
	`^[^a-z\d]*(?:(?:with|error|code|status|re[st]\w*|err)[ :=([]*)*-?(?:[013-9]|2[1-9]|20[^7])|` +
	`^: (?:an? illegal|an? invalid|invalid|unspecified|misaligned|device-side|no cuda|initialization|unknown|driver|` +
	`the launch)\b`)

// broken reports whether the process's GPU failed before, and nothing said since that memory ran out.
func (st statement) broken() bool {
	last := len(st.found) - 1
	return (last < 0 || st.found[last].Kind != record.KindDevice) && st.isNear(-1, episode, isBroken)
}

// runtimes matches evidence that an error number is CUDA's or HIP's and not a program's exit status.
var runtimes = lazily(`cuda (?:error|failure|runtime|driver|initialization)|cudaerror|cudasuccess|` +
	`cudacheck|hip ?error|alloc|cufft|curesult`)

// givesName matches text before the name of an error that a call returned.
var givesName = lazily(`(?:result|code|status|return|curesult|hresult)[^ ]* ?[=:]? ?[\d]*[)\]]? ?[(=]?$|results? in $`)

var tableRow = lazily(`^\|.*\|.*\|`) // of a document

// testPassed matches the line of a test that passed, which has the message in its name.
var testPassed = lazily(`^(?:--- pass|ok \d|pass:? |passed )|\b\d+ passed\b|\(\d+ ?ms\)$|` +
	`[ .](?:passed|pass|ok|xfail)(?: *\[ *\d+%\]| +[\d.]+ ?(?:ms|s|sec|seconds))?$`)

// isNear reports whether one of the next count lines above (step -1) or below has a word of the class.
func (st statement) isNear(step, count int, c class) bool {
	return slices.ContainsFunc(st.near(step, count), func(l *line) bool { return l.facts.has[c] })
}

// hashLogged matches the beginning of an error that a program prints as a comment of its output: "# QUDA: ERROR: ".
var hashLogged = lazily(`^# [a-z][\w-]*: (?:error|fatal)`)

// Words and marks that begin lines of programs, scripts, shell traces, comments and lists.
var (
	sourceMark = lazily(`^(?:#|//|/\*|\* |\*\*[^* ]+ [^*]+(?:\.\*\*|\*\*:) \w` +
		`|[0-9a-f]{7,40} (?:fix|catch|add|handle|avoid|prevent|report|retry)\w* ` +
		`|'|\+ |<<|--[^>-]|>>>|\$ |(?:q|question|prompt|answer|assistant|body): ` +
		`|- \w+: ["']|` +
		`\{"(?:question|prompt|instruction|input)":|[\w./-]+\.(?:log|out|err|txt):(?:\d+:)?[^\d/])`)
	sourceWord = lazily(`^(?:(?:if|elif|except|catch|raise|throw|return|assert|def|import|echo|printf?|` +
		`options?|const|static|case|#define|grep|hint|tip|note|usage|example|pattern|regex|match|title|` +
		`search for):*(?: |$)|` +
		`[^ ]* = |\d[.)] |e(?:nomem|again|nospc) +)`)
)

// opensValue matches text before a quoted value: a log field, JSON, a name, or an exception printed by Python.
var (
	opensValue = lazily(`panicked at$|=.* (?:msg|err|error|message|reason|cause|exception|detail)=$|\{".*":$|` +
		`named$|with (?:message|description)$|(?:[a-z0-9]error|outofresources)\(?$|(?:^|[ =(\[,:])b$|` +
		`^"(?:error|err|message|msg|exception|exc_info|detail|reason|cause|stderr)":$`)
	// opensText matches text before the quoted text of an exception, which begins with its name.
	opensText = lazily(`(?:error|failed|failure|exception|reason|cause|message|msg)['"]?:$|` +
		`(?:stderr|stdout|output)[:=] ?b?$`)
	exceptionName = lazily(`^[\w.]*(?:error|exception|outofresources)[(:]`)
	// opensCause matches an error number or name, or a colon, right before the quotes.
	opensCause = lazily(`(?:[:"\d]|error|failure|code|instance of)$`)
)

// inQuotes reports whether the sign is quoted by source code or by a person.
func inQuotes(before, after string) bool {
	for _, quote := range []string{"`", `"`, "'"} {
		at := strings.LastIndex(before, quote)
		if at < 0 || strings.Count(before, quote)%2 == 0 || !strings.Contains(after, quote) {
			continue
		}
		opened, inside := strings.TrimRight(before[:at], " "), before[at+1:]
		apostrophe := quote == "'" && inside != "" && !strings.HasPrefix(after, "'") && !strings.HasSuffix(opened, "(")
		isValue := opensValue().MatchString(opened) ||
			opensText().MatchString(opened) && exceptionName().MatchString(inside) ||
			strings.Trim(inside, `"`) == "" && opensCause().MatchString(opened)
		if !apostrophe && !isValue {
			return true
		}
	}
	return false
}

// Words before a sign that turn it into a denial, a guess, advice or a definition.
var (
	supposing = lazily(`^(?:we|i|they) | (?:of|or|not|probably)$`)
	supposes  = lazily(`(?:^|[ ,()"'*])(?:(?:no|without|if|any|avoid|avoids|avoiding|except|catch|catching|` +
		`catches|never|prevent|prevents|preventing|import|may|might|would|whether|unless|usually|sometimes|often|` +
		`typically|simulated?|likely|possibly|perhaps|maybe|will|against|expected|earlier|previous|i|we|` +
		`getting|get|fix|fixes|fixed|handles?|handled|detects?)(?:[ ,()"'*]|$)|because it |` +
		`when (?:it|the|there) |means (?:that|the|your) |(?:is|was) an? |(?:can|could) +(?:[^n ]|n[^o]|no[^t]))`)
)

func supposed(before string) bool {
	before = strings.TrimRight(before, ": (")
	clause := before[strings.LastIndex(before, ": ")+1:]
	clause = clause[max(strings.LastIndex(clause, ". "), strings.LastIndex(clause, "? "))+1:]
	return supposing().MatchString(before) || supposes().MatchString(clause)
}

// Words and marks after a sign that make it a topic, a counter, or source code.
var discusses = lazily(`^(?:\?|"?: ?false|(?: events?)?: 0\b| 0 |\|| \| |: the api call|: this (?:indicates|error)|` +
	"[`" + `{\\]| = | \{| ==|=\d|;$)|` +
	`^["']? *(?:[^ ]*[^ .:,] +){0,2}(?:errors|issues|problems|conditions|exceptions|means|indicates|occurs|happens|` +
	`handling|or|may|might|is|so|will|raised|thrown|returned)[.,:;)]*(?: |$)|` +
	`^ {3,}(?:the|an?|your?|not|too|reduce|use|increase|try)\b|^ +-?\d+  |` + // a table's next column
	`^(?:s| bandwidth| clock| usage| utili[sz]ation| info| count(?:s|er))\b|` + // and then a place for a number
	`^[a-z ]* (?:[a-z]|xx+|%[\w.]+|<\w+>|\{[^}]*\}) ?(?:bytes|[kmgt]i?b)\b`)

func (st statement) failed() bool {
	if st.facts.has[isError] || st.line.facts.has[isError] || st.facts.has[givesUp] {
		return true
	}
	if strings.Contains(st.before, "warn") {
		return false
	}
	text, _, _ := strings.Cut(st.whole(), ". ") // advice follows
	sizes := sizesIn(st.line.body[max(0, st.pos-maxBefore):st.pos] + text)
	return slices.ContainsFunc(sizes, func(f figure) bool { return f.of == asked })
}

// How many lines around a statement may belong to it, because errors are often spread over several lines.
const (
	linesAbove = 4
	linesBelow = 2
)

// memoryKind returns what ran out: host memory if host and GPU are both named; if neither is, nearby lines decide.
func (st statement) memoryKind() (record.MessageKind, bool) {
	own, clause := st.facts, st.around[strings.LastIndex(st.before, ": ")+1:]
	switch {
	case st.kind == record.KindShared, st.is("sure"):
		return st.kind, !st.is("weak") || st.line.facts.has[isError] || st.isNear(-1, linesAbove, isError)
	case st.kind == record.KindFault:
		return record.KindFault, !st.is("weak") || st.failed() && evidenceIn(st.before + st.text).has[isGPU]
	case sizedTorch().MatchString(st.after) && own.has[isGPU]:
		return record.KindDevice, true
	case st.isRuntime():
		return record.KindHost, true
	case st.is("weak") && !st.failed() && !st.endsError():
		return "", false
	case st.text+st.after == "cannot allocate memory" && st.isNear(-1, episode, isEncoder):
		return record.KindDevice, true // FFmpeg's word for what NVENC lacked
	case st.kind == record.KindHost && !st.is("soft"), own.has[isHostCall], own.has[isHost]:
		return record.KindHost, true
	case !strings.Contains(st.around, "alloc") && st.hostNear():
		return record.KindHost, true
	case strings.HasSuffix(st.before, "what():  ") && st.is("soft") && st.isNear(-1, 1, isGPU): // Thrust
		return record.KindDevice, true
	case st.kind == record.KindDevice && !st.is("weak"), own.has[isGPU] && !own.has[isCompiler] &&
		(!st.is("soft") || evidenceIn(clause).has[isGPU]):
		return deviceKind(own), true
	case st.kind == record.KindHost:
		return record.KindHost, true
	case own.has[isCompiler]: // a compiler lacks host memory
		return record.KindHost, st.text == "out of memory allocating"
	}
	return st.memoryKindNear()
}

// isRuntime reports whether a language's runtime says it of its own heap, in a line of its own: Perl's, Go's or .NET's.
func (st statement) isRuntime() bool {
	below := ""
	for _, l := range st.lines[st.at+1 : min(st.at+3, len(st.lines))] {
		below += l.lower + "\n"
	}
	switch st.line.lower {
	case "out of memory!":
		return !st.isNear(-1, linesAbove, isGPU) && !st.isNear(1, linesBelow, isGPU)
	case "fatal error: out of memory", "out of memory.":
		return strings.HasPrefix(below, "\nruntime stack:\n") || strings.HasPrefix(below, "at system.")
	}
	return false
}

// memoryKindNear decides by the lines around the statement, if an error is spread over several. A GPU that one names
// counts before host memory that another names.
func (st statement) memoryKindNear() (record.MessageKind, bool) {
	for _, l := range st.neighbours() {
		if f := &l.facts; f.has[isGPU] && f.has[isError] && !f.has[isHostCall] {
			return deviceKind(f), true
		}
	}
	if st.speaker().onlyGPU {
		return record.KindDevice, true
	}
	failedOnHost := func(l *line) bool { return l.facts.has[isHost] && l.facts.has[isError] }
	return record.KindHost, slices.ContainsFunc(st.neighbours(), failedOnHost)
}

func (st statement) neighbours() []*line {
	below := linesBelow
	if frames := st.lines[st.at:min(st.at+3, len(st.lines))]; len(frames) == 3 && frames[2].lower == stackTrace {
		below = maxWrapped
	}
	return append(st.near(-1, linesAbove), st.near(1, below)...)
}

// endsError reports whether the statement ends an error, in its line or in one that began above.
func (st statement) endsError() bool {
	count := linesAbove
	if st.pos == 0 {
		count = 1
	} else if st.after == "" && sourceLine().MatchString(st.line.body) {
		return true
	} else if !strings.HasSuffix(st.before, ": ") {
		return false
	}
	return st.isNear(-1, count, isError)
}

// sourceLine matches the place in a program's source that begins an error.
var sourceLine = lazily(`^\S+\.(?:cu|cuh|c|cc|cpp|cxx|h|hpp|f90|rs|go|jl)(?: ?\(\d+\)|:\d+)`)

// hostNear reports whether another line names the failed call, or an earlier failure, and that was for host memory.
func (st statement) hostNear() bool {
	again := false
	if last := len(st.found) - 1; last >= 0 {
		again = st.found[last].Kind == record.KindHost &&
			found{stream: st.line.stream, at: st.at}.isNear(st.found[last])
	}
	for _, l := range st.neighbours() {
		call := l.facts.has[isHostCall] && !strings.Contains(l.lower, "): out of memory")
		if call || again && strings.Contains(l.lower, "cudagetlasterror") {
			return true
		}
	}
	return again && strings.Contains(st.around, "cudagetlasterror")
}

func deviceKind(f *facts) record.MessageKind {
	if f.has[isStart] {
		return record.KindInit
	}
	return record.KindDevice
}

type speaker struct {
	framework record.Framework
	onlyGPU   bool // such messages are about the GPU's memory
	library   bool // a program that counts only if the message names no library
}

func (st statement) speaker() speaker {
	if best := min(st.facts.speaker, st.line.facts.speaker); best != nowhere {
		return vocabulary().speakers[best]
	}
	return speaker{framework: record.FromOther}
}

const programLines = 100 // lines above and below a message that may show its program, as a traceback does

// program returns the program that the library worked for; none if it is the library itself, or unknown. Lines of other
// processes count too: a job rarely runs several programs at once.
func (s *scan) program(library record.Framework) record.Framework {
	mute := slices.Contains([]record.Framework{record.FromCUDA, record.FromOther, "HIP", "NCCL", "OpenCL"}, library)
	best, programs := nowhere, vocabulary().programs
	for _, l := range s.lines[max(0, s.at-programLines):min(len(s.lines), s.at+programLines)] {
		if p := l.facts.program; p < best && (mute || !programs[p].library) {
			best = p
		}
	}
	if best == nowhere || programs[best].framework == library {
		return record.FromOther
	}
	return programs[best].framework
}

func (st statement) framework(k record.MessageKind) record.Framework {
	f := st.speaker().framework
	if f == record.FromOther && (k != record.KindHost || st.facts.has[isGPU] || st.facts.has[isHostCall]) {
		return record.FromCUDA
	}
	return f
}
