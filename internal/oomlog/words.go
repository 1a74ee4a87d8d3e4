package oomlog

import (
	_ "embed"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"bookend/internal/record"
)

// class is a section of words.txt, which explains classes and traits.
type class string

const (
	isSign     class = "sign"
	isSpeaker  class = "speaker"
	isProgram  class = "program"
	isGPU      class = "GPU"
	isHost     class = "host"
	isHostCall class = "host call"
	isStart    class = "start"
	isError    class = "error"
	goesOn     class = "goes on"
	givesUp    class = "gives up"
	isFrame    class = "frame"   // of a traceback
	isEncoder  class = "encoder" // NVENC
	restarts   class = "restarts"
	isDone     class = "is done"
	isMemory   class = "memory"
	isOther    class = "other"
	isCode     class = "code"
	isCompiler class = "compiler"
	isBroken   class = "broken" // a GPU
	isFigure   class = "figure"
	isWritten  class = "written" // by people
	isAsked    class = "question"
	isPassed   class = "passed" // a test, perhaps
)

// word is one of the texts searched for, in lower case.
type word struct {
	text   string
	class  class
	name   string             // what its section names: a program, a figure, a part of what people write
	kind   record.MessageKind // of a sign: what ran out; unsaid if the text around decides
	index  int                // of a speaker or program in words.speakers or words.programs
	traits []string           // of a sign
}

func (w *word) is(trait string) bool { return slices.Contains(w.traits, trait) }

const unsaid record.MessageKind = "unsaid"

//go:embed words.txt
var wordsFile string

// words holds all words by their first three bytes, so that a text is read only once.
type words struct {
	byStart            map[string][]*word
	speakers, programs []speaker
	figures            []figureForm
	written            map[string]pattern // by the section's name
}

// figureForm is the fixed wording of one of record.Message.Figures, or of the program's limit, which comes after them.
type figureForm struct {
	word word
	of   int
	sign string // the longest part that has to be in the text
	form pattern
}

var (
	figureNames = []string{"asked", "total", "free", "in use", "allocated", "idle", "cap"}
	hole        = lazily(`\*|<\w+>`)
	holes       = strings.NewReplacer(`\*`, `\S+`, "<size>", "SIZE", "<number>", `([\d.]+)`, "<unit>", `(\w+)`)
)

func newForm(w word) figureForm {
	longest := slices.MaxFunc(hole().Split(w.text, -1), func(a, b string) int { return len(a) - len(b) })
	return figureForm{w, slices.Index(figureNames, w.name), longest,
		form(holes.Replace(regexp.QuoteMeta(w.text)))}
}

var vocabulary = sync.OnceValue(func() *words {
	all, section := words{byStart: map[string][]*word{}, written: map[string]pattern{}}, word{}
	written := map[string][]string{}
	for line := range strings.Lines(wordsFile) {
		line = strings.TrimSuffix(line, "\n")
		if head, begins := strings.CutPrefix(line, "== "); begins {
			section = all.section(head)
		} else if line != "" && line[0] != '#' {
			w := section
			w.text = line
			if line[0] == '"' {
				w.text = line[1 : len(line)-1]
			}
			switch w.class {
			case isWritten:
				written[w.name] = append(written[w.name], w.text)
			case isFigure:
				all.figures = append(all.figures, newForm(w))
			default:
				all.byStart[w.text[:3]] = append(all.byStart[w.text[:3]], &w)
			}
		}
	}
	for name, list := range written {
		all.written[name] = lazily(strings.Join(list, "|"))
	}
	return &all
})

// section parses the head of a section, which applies to all of its words: "sign: host, soft", "speaker: JAX, GPU".
func (all *words) section(head string) word {
	name, details, _ := strings.Cut(head, ": ")
	traits := strings.Split(details, ", ")
	w := word{class: class(name), name: traits[0], traits: traits[1:]}
	about := speaker{record.Framework(w.name), w.is("GPU"), w.is("library")}
	switch w.class {
	case isSign:
		w.kind = record.MessageKind(w.name)
	case isSpeaker:
		w.index, all.speakers = len(all.speakers), append(all.speakers, about)
	case isProgram:
		w.index, all.programs = len(all.programs), append(all.programs, about)
	}
	return w
}

type hit struct {
	*word
	pos int
}

const (
	shortest = len("error 2") // the shortest sign
	maxHits  = 8              // number of signs examined in one line
)

type facts struct {
	hits    []hit
	has     map[class]bool
	speaker int // its index in words.speakers, or nowhere
	program int // its index in words.programs, or nowhere
	code    int // where source code begins, or nowhere
}

const nowhere = 1 << 30

func evidenceIn(lower string) facts {
	f, all := facts{has: map[class]bool{}, speaker: nowhere, program: nowhere, code: nowhere}, vocabulary().byStart
	for i := range max(0, len(lower)-2) {
		for _, w := range all[lower[i:i+3]] {
			if strings.HasPrefix(lower[i:], w.text) {
				f.note(w, i, lower)
			}
		}
	}
	return f
}

func (f *facts) note(w *word, at int, lower string) {
	begins := at == 0 || !isAlnum(lower[at-1])
	switch w.class {
	case isSign:
		last := len(f.hits) - 1
		if begins && (w.kind != unsaid || at == 0 || lower[at-1] != '_') && last < maxHits-1 &&
			(last < 0 || f.hits[last].pos < at || f.hits[last].is("lined")) &&
			(!w.is("object") || ofMemory(lower[at+len(w.text):])) {
			f.hits = append(f.hits, hit{w, at})
		}
	case isCode:
		f.code = min(f.code, at)
	case isSpeaker:
		f.speaker = min(f.speaker, w.index)
	case isProgram:
		if begins || !isAlnum(w.text[0]) {
			f.program = min(f.program, w.index)
		}
	case isGPU:
		rest := lower[at+len(w.text):]
		if (begins || w.text == "cuda") && !f.has[isGPU] && !(w.text == "gpu" && hostname().MatchString(rest)) {
			f.has[isGPU] = !inFilename(lower, at) && !strings.HasSuffix(lower[:at], "space left on ")
		}
	case isCompiler:
		f.has[isCompiler] = f.has[isCompiler] || begins
	case goesOn:
		if !advises().MatchString(lower[max(0, at-24):at]) && !strings.HasPrefix(lower[at+len(w.text):], " failed") {
			f.has[goesOn] = true
		}
	default:
		f.has[w.class] = true
	}
}

// object matches memory, or a size of it, in the words after a verb; otherObject what else may be short.
var otherObject = lazily(`shared|disk|storage|swap|gpus|node|slot`)

var object = lazily(`^(?: (?:an?|another|about|at|least|of|size|block|buffer))* [\d.,]+ ?(?:[kmgt]i?b|bytes)\b|` +
	`^(?: [\w./():-]+){0,3}? (?:memory|mem|vram)` +
	`(?:$|[^a-z_ -]| [(\d]| (?:for|to|on|left|available|at|when|while|during|from)\b)`)

func ofMemory(after string) bool {
	found := object().FindString(after[:min(len(after), maxLead)])
	return found != "" && !otherObject().MatchString(found)
}

// hostname matches the rest of a host's name after "gpu": gpu17, gpu-node3.
var hostname = lazily(`^(?:[-n]|\d\d)`)

// advises matches text before a word that makes it advice, or a denial.
var advises = lazily(`try |consider|please|should|(?:can't|cannot|not) (?:\w+ )?$|by $`)

// inFilename reports whether the word at i is a path, source or library, as in "sort.cu:7:" or "a.cu(12):".
func inFilename(text string, i int) bool {
	before, after := text[max(0, i-maxBefore):i], text[i:min(len(text), i+maxBefore)]
	after, _, _ = strings.Cut(after, " ")
	word := before[strings.LastIndexByte(before, ' ')+1:] + after
	if strings.ContainsAny(word, `/\\`) && !strings.Contains(word, "device:gpu:") {
		return true
	}
	return slices.Contains(fileSuffixes, path.Ext(strings.TrimRight(word, ":()[],.0123456789")))
}

var fileSuffixes = []string{".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".o", ".so", ".a", ".py",
	".ptx", ".f90", ".log"}
