package doctor

import (
	"time"

	"bookend/internal/routine"
	"bookend/internal/stage"
)

// opLook is the operation of a child that looks at one place.
const opLook = "doctor-look"

// Patience is how long an admin is kept waiting for a place that may not answer; a healthy one takes milliseconds, a node
// under load seconds.
const Patience = 5 * time.Second

// Operations are what the children of a program with doctor in it serve.
func Operations() stage.Operations {
	all := surveys()
	all[opLook] = stage.Served(func(r request) (Facts, error) {
		facts := Facts{}
		for name, look := range r.Looks {
			facts[name] = see(look)
		}
		return facts, nil
	})
	return all
}

// request crosses the pipe of opLook: all that is to be looked at in one place, by the check that asks.
type request struct {
	Looks map[string]Look `json:"looks"`
}

// Examine looks at the node and judges what was seen. What does not answer within patience is unknown.
func Examine(s Site, patience time.Duration) []Result {
	s.Survey = survey(s, patience)
	s.NodeName = s.Survey.Node
	places := map[string]request{}
	for _, c := range Checks() {
		look := c.Look(s)
		if len(look.Paths) == 0 {
			continue
		}
		if places[look.Place].Looks == nil {
			places[look.Place] = request{map[string]Look{}}
		}
		places[look.Place].Looks[c.Name] = look
	}
	return Judge(s, gather(places, patience))
}

// gather looks at all places at once, each in a child of its own.
func gather(places map[string]request, patience time.Duration) Facts {
	answers := make(chan Facts, len(places))
	for _, r := range places {
		failed := func(why string) {
			facts := Facts{}
			for name := range r.Looks {
				facts[name] = Seen{Unknown: why}
			}
			answers <- facts
		}
		routine.Go(func(p *routine.Panic) { failed(p.Error()) }, func() {
			facts, err := stage.Ask[Facts](opLook, r, patience)
			if err != nil {
				failed(err.Error())
				return
			}
			answers <- facts
		})
	}
	all := Facts{}
	for range places {
		for name, seen := range <-answers {
			all[name] = seen
		}
	}
	return all
}
