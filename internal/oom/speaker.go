package oom

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
