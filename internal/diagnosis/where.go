package diagnosis

import (
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/oom"
)

// spread reports a job of several nodes, or of several components: its output has the messages of all of them.
func (j judge) spread() bool { return j.Job.HetJobID != 0 || severalNodes(j.Job.NodeList) }

// severalNodes reports a node list as Slurm writes it that has more than one name: "n1,n3", "n[1-2]".
func severalNodes(list string) bool {
	inside := false
	for _, c := range list {
		switch {
		case c == '[', c == ']':
			inside = c == '['
		case c == ',', c == '-' && inside:
			return true
		}
	}
	return false
}

// here: a message is surely of this node, as every one of a job that has no other.
func (j judge) here(m oom.Message) bool { return !j.spread() || len(j.sightedAs(m.PID, true)) > 0 }

// away: a message may be of another node, whose cards nobody here has seen.
func (j judge) away() bool {
	for _, m := range j.Messages {
		if !j.here(m) {
			return true
		}
	}
	return false
}

// sightedAs returns the cards on which other hooks saw a process, of the job itself or whosever.
func (j judge) sightedAs(pid int, own bool) map[gpu.ID]bool {
	on := map[gpu.ID]bool{}
	for _, s := range j.Seen {
		if pid != 0 && s.PID == pid && (s.Own || !own) {
			on[s.Device] = true
		}
	}
	return on
}

// card is the job's card that a message is about, nil where that is not certain. The framework's own number says
// nothing: it counts what its process sees, in the order of CUDA_VISIBLE_DEVICES.
func (j judge) card(m oom.Message) *finding.Card {
	if id, one := only(j.sightedAs(m.PID, true)); one {
		return j.byID(id)
	}
	if j.spread() {
		return nil
	}
	if len(j.Cards) == 1 {
		return &j.Cards[0]
	}
	if id, one := only(j.placedBy(m)); one {
		return j.byID(id)
	}
	return nil
}

// placedBy returns the cards that the processes are on that a message lists beside its own.
func (j judge) placedBy(m oom.Message) map[gpu.ID]bool {
	on := map[gpu.ID]bool{}
	for _, p := range m.Others {
		for id := range j.sightedAs(p.PID, false) {
			on[id] = true
		}
		for _, h := range j.held() {
			if live(h.Finding) && h.Holder.PID == p.PID {
				on[h.GPU] = true
			}
		}
	}
	return on
}

func only(on map[gpu.ID]bool) (gpu.ID, bool) {
	for id := range on {
		return id, len(on) == 1
	}
	return "", false
}

// unplaced: some allocation failed on a card of the job that is not known.
func (j judge) unplaced() bool {
	for _, m := range j.said(oom.Device) {
		if j.card(m) == nil {
			return true
		}
	}
	return false
}

// cleared: all that was said shows, wherever it was, that nobody else held enough to matter.
func (j judge) cleared() bool {
	for _, a := range j.accounts {
		if !a.restKnown || a.rest > 0 || a.Count > 1 {
			return false
		}
	}
	return len(j.accounts) > 0 && len(j.accounts) == len(j.Messages)
}

// elsewhereToo takes back a no that is known of this node alone, where the job may have failed on another.
func (j judge) elsewhereToo(c Cause) Cause {
	silent := j.spread() && len(j.Messages) == 0
	if c.Answer != No || !j.away() && !silent {
		return c
	}
	said := false // by the messages themselves, wherever they are from
	switch c.Name {
	case Others, Leftover, Unlisted, Processes, Overhead:
		said = j.cleared()
	case Pieces, Fault, Limits:
		said = j.ranOut()
	case Own:
		said = len(j.accounts) > 0 || j.startless() || j.hostMemory().answer == Yes
	case Pool, Share:
		said = true
	}
	if !said {
		c.Answer, c.Evidence = Unknown, c.Evidence+"; known of "+j.Job.Node+" alone"
	}
	return c
}
