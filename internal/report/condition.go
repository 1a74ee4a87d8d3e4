package report

import (
	"fmt"
	"strings"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
)

// failing words a finding of a card's condition for a user: no PIDs, as they may be another's, no advice for admins,
// and of several clauses the first.
func (s Scene) failing(f finding.Finding) string {
	switch f.Code {
	case code.Xid, code.XidFatal:
		if f.Xid == 0 {
			return "the driver reported an error (Xid)"
		}
		meaning, known := health.XidMeaning(f.Xid)
		if !known {
			meaning = "of a kind that is not known here"
		}
		return fmt.Sprintf("the driver's error Xid %d: %s", f.Xid, meaning)
	case code.Gap:
		text, _, _ := strings.Cut(f.Observed, ", after ")
		return string(Clean(text, 3*Width))
	case code.Blocked:
		return "a test could not get any of its free memory"
	case code.Broken:
		text, _, _ := strings.Cut(f.Observed, ";")
		return "a test of CUDA failed: " + string(Clean(text, Width))
	}
	return string(Clean(f.Observed, 3*Width))
}

// unusable reports that a job may well fail here, however much memory is free.
func unusable(told []finding.Finding) bool {
	for _, f := range told {
		switch {
		case f.Unknown != "":
		case f.Code == code.Blocked, f.Code == code.Broken, f.Code == code.XidFatal, f.Code == code.Recovery,
			f.Code == code.Fabric:
			return true
		}
	}
	return false
}

// cleanStart is the one line at the start of a job on clean cards: with the largest block that a test got, where
// there is room for it.
func (s Scene) cleanStart() string {
	who, nobody := fmt.Sprintf("%s of %s clean: %s", s.gpus(), s.Node, s.free()), ", nobody on "+s.them()
	if block, known := s.leastBlock(); known {
		tested := fmt.Sprintf("%s, %d in one block", who, block>>20)
		for _, text := range []string{tested + nobody, tested} {
			if len(prefix)+len(text) <= Width {
				return text
			}
		}
	}
	return who + nobody
}

// leastBlock is the smallest of the largest blocks that tests got, known where every card's is.
func (s Scene) leastBlock() (bytes uint64, known bool) {
	tested := map[gpu.ID]uint64{}
	for _, p := range s.Probes {
		if p.Largest.Known() && (p.Result == gpu.ProbeOK || p.Result == gpu.ProbeGap) {
			tested[p.Device] = p.Largest.Bytes
		}
	}
	for i, c := range s.Cards {
		block, ok := tested[c.Device.ID]
		if !ok {
			return 0, false
		}
		if i == 0 || block < bytes {
			bytes = block
		}
	}
	return bytes, len(s.Cards) > 0
}
