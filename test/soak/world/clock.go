package world

import (
	"slices"
	"sort"
	"time"
)

// event is something that happens at a moment of the world's own time.
type event struct {
	at time.Duration
	do func()
}

// agenda are the events to come, earliest first; those of one moment in the order they were made.
type agenda []event

func (a *agenda) push(at time.Duration, do func()) {
	behind := sort.Search(len(*a), func(i int) bool { return (*a)[i].at > at })
	*a = slices.Insert(*a, behind, event{at, do})
}

func (a *agenda) pop() (first event) {
	first, *a = (*a)[0], (*a)[1:]
	return first
}
