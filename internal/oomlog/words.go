package oomlog

import (
	_ "embed"
	"path"
	"slices"
	"strings"
	"sync"

	"bookend/internal/record"
)

type class byte

const (
	isSign class = iota
	isSpeaker
	isGPU
	isHost
	isHostCall
	isStart
	isError
	goesOn
	isMemory
	isOther
	isCode
	isCompiler
)

var classes = []string{"sign", "speaker", "GPU", "host", "host call", "start", "error", "goes on", "memory", "other",
	"code", "compiler"}

// word is one of the texts searched for, in lower case. words.txt explains the classes and traits.
type word struct {
	text  string
	class class
	kind  record.MessageKind // for a sign: what ran out; unsaid if the text around decides
	who   int                // for a speaker: its index in words.speakers
	// traits of signs
	weak, soft, head, ends, memory, fails, coded bool
}

const unsaid record.MessageKind = ""

//go:embed words.txt
var wordsFile string

// words holds all words by a hash of their first three bytes, so that a text is read only once.
type words struct {
	byStart  [1 << 12][]word
	speakers []speaker
}

var vocabulary = sync.OnceValue(func() *words {
	var all words
	var as word
	for line := range strings.Lines(wordsFile) {
		line = strings.TrimSuffix(line, "\n")
		head, begins := strings.CutPrefix(line, "== ")
		switch {
		case begins:
			as = all.section(head)
		case line != "" && line[0] != '#':
			as.text = line
			if line[0] == '"' {
				as.text = line[1 : len(line)-1]
			}
			at := start(as.text)
			all.byStart[at] = append(all.byStart[at], as)
		}
	}
	return &all
})

// section parses the head of a section, which applies to all of its words: "sign: host, soft", "speaker: JAX, GPU".
func (all *words) section(head string) (w word) {
	name, details, _ := strings.Cut(head, ": ")
	w.class = class(slices.Index(classes, name))
	first, traits, _ := strings.Cut(details, ", ")
	switch w.class {
	case isSpeaker:
		w.who = len(all.speakers)
		all.speakers = append(all.speakers, speaker{record.Framework(first), traits == "GPU"})
	case isSign:
		if first != "unsaid" {
			w.kind = record.MessageKind(first)
		}
		has := func(trait string) bool { return slices.Contains(strings.Split(traits, ", "), trait) }
		w.weak, w.soft, w.head, w.ends = has("weak"), has("soft"), has("head"), has("ends")
		w.memory, w.fails, w.coded = has("memory"), has("fails"), has("coded")
	}
	return w
}

func start(text string) int {
	return (int(text[0])<<6 ^ int(text[1])<<3 ^ int(text[2])*37) & (1<<12 - 1)
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
	has     [isCompiler + 1]bool
	speaker int // its index in words.speakers, or nowhere
	code    int // where source code begins, or nowhere
}

const nowhere = 1 << 30

func evidenceIn(lower string) facts {
	f := facts{speaker: nowhere, code: nowhere}
	all := &vocabulary().byStart
	for i := 0; i+2 < len(lower); i++ {
		words := all[start(lower[i:i+3])]
		if len(words) == 0 {
			continue
		}
		begins := i == 0 || !isAlnum(lower[i-1])
		for w := range words {
			if strings.HasPrefix(lower[i:], words[w].text) {
				f.note(&words[w], i, begins, lower)
			}
		}
	}
	return f
}

func (f *facts) note(w *word, at int, begins bool, lower string) {
	switch w.class {
	case isSign:
		if begins && (w.kind != unsaid || at == 0 || lower[at-1] != '_') && len(f.hits) < maxHits &&
			(len(f.hits) == 0 || f.hits[len(f.hits)-1].pos < at) {
			f.hits = append(f.hits, hit{w, at})
		}
	case isCode:
		f.code = min(f.code, at)
	case isSpeaker:
		f.speaker = min(f.speaker, w.who)
	case isGPU:
		rest := lower[at+len(w.text):]
		if (begins || w.text == "cuda") && !f.has[isGPU] && !(w.text == "gpu" && hostname().MatchString(rest)) {
			f.has[isGPU] = !inFilename(lower, at)
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

// hostname matches the rest of a host's name after "gpu": gpu17, gpu-node3.
var hostname = lazily(`^(?:[-n]|\d\d)`)

// advises matches text before a word that makes it advice, or a denial.
var advises = lazily(`try |consider|please|should|can't|cannot|not |by $`)

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
