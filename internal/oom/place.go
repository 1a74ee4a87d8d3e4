package oom

import (
	"iter"
	"strings"
)

// Lines of a statement's neighbourhood: errors are often spread over some.
const (
	linesAbove = 4
	linesBelow = 2
)

// place tells what ran out. Host memory is never called a GPU's: what speaks of both is the host's, and what speaks of
// neither is nothing.
func (st statement) place() (Kind, bool) {
	own := st.facts
	switch {
	case st.kind == Shared:
		return Shared, true
	case st.kind == Fault:
		return Fault, !st.weak || st.failed() && evidenceIn(st.before()).has[isGPU]
	case sizedTorch().MatchString(st.after()) && own.has[isGPU]:
		return Device, true
	case st.weak && !st.failed() && !st.endsError():
		return "", false
	case st.kind == Host && !st.soft, own.has[isHostCall], own.has[isHost]:
		return Host, true
	case !strings.Contains(st.around(), "alloc") && st.hostNear():
		return Host, true
	case st.kind == Device && !st.weak, own.has[isGPU] && !own.has[isCompiler] &&
		(!st.soft || evidenceIn(st.clause()).has[isGPU]):
		return called(own), true
	case st.kind == Host:
		return Host, true
	case own.has[isCompiler]: // what it lacks is the host's
		return Host, st.text == "out of memory allocating"
	}
	return st.placeNear()
}

// placeNear tells it by the lines around, where a statement is spread over some.
func (st statement) placeNear() (Kind, bool) {
	for l := range st.neighbours() {
		if f := l.facts(); f.has[isGPU] && f.has[isError] && !strings.HasPrefix(l.lower, "file ") &&
			!isSource(l.lower, l.lower) {
			return called(f), true
		}
	}
	return Device, st.speaker(true).onlyGPU
}

// neighbours are the lines above the statement and below it that may belong to it.
func (st statement) neighbours() iter.Seq[*line] {
	return func(yield func(*line) bool) {
		for l := range st.s.near(st.at, -1, linesAbove) {
			if !yield(l) {
				return
			}
		}
		st.s.near(st.at, 1, linesBelow)(yield)
	}
}

// endsError: the statement is the last line, or the end of one, of an error that the lines above began.
func (st statement) endsError() bool {
	count := linesAbove
	if st.pos == 0 {
		count = 1
	} else if !strings.HasSuffix(st.before(), ": ") {
		return false
	}
	return st.near(-1, count, isError)
}

// hostNear: the call that failed is named by another line, and was for host memory; or it is an earlier error of such a
// call that the program meets again.
func (st statement) hostNear() bool {
	again := false
	if len(st.s.found) > 0 {
		last := &st.s.found[len(st.s.found)-1]
		again = last.Kind == Host && last.stream == st.line.stream && st.at-last.at <= episode
	}
	sticky := again && strings.Contains(st.around(), "cudagetlasterror")
	for l := range st.neighbours() {
		if l.facts().has[isHostCall] && !strings.Contains(l.lower, "): out of memory") {
			return true
		}
		sticky = sticky || again && strings.Contains(l.lower, "cudagetlasterror")
	}
	return sticky
}

// called is what ran out, by the call that failed.
func called(f *facts) Kind {
	if f.has[isStart] {
		return Init
	}
	return Device
}

// speaker is a program that speaks.
type speaker struct {
	framework Framework
	onlyGPU   bool // such words are about the GPU's memory
}

// speaker finds who says it: by the line itself, or if wide by those around it.
func (st statement) speaker(wide bool) speaker {
	best := min(st.facts.speaker, st.line.facts().speaker)
	if wide && best == nowhere {
		for l := range st.neighbours() {
			best = min(best, l.facts().speaker)
		}
	}
	if best == nowhere {
		return speaker{framework: Other}
	}
	return vocabulary().speakers[best]
}

// framework names who says it. A message about host memory is named by its own line only.
func (st statement) framework(k Kind) Framework {
	f := st.speaker(k == Device || k == Init).framework
	if f == Other && (k != Host || st.facts.has[isGPU] || st.facts.has[isHostCall]) {
		return CUDA
	}
	return f
}
