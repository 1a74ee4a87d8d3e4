package main

import (
	"fmt"
	"strings"

	"bookend/internal/state"
	"bookend/test/privacy"
)

// private ends the story: of all that its users have read nothing was of the other.
func (d *demo) private() error {
	known, err := d.known()
	if err != nil {
		return err
	}
	d.step("What the two users know of each other")
	d.say("Each text that a user has read above is searched for the other's account, jobs, processes, programs and paths, as root's records have them.")
	return d.expect(equal(fmt.Sprintf("nothing, in %d texts", len(d.read)), "", strings.Join(d.leaks(known), "\n")))
}

// leaks are what the users' texts say of somebody else.
func (t *teller) leaks(known []privacy.Facts) (leaks []string) {
	for _, r := range t.read {
		leaks = append(leaks, privacy.Leaks(r.text, r.who, known)...)
	}
	return leaks
}

// known is what root's records tell of the users.
func (d *demo) known() ([]privacy.Facts, error) {
	var people []privacy.Person
	for _, user := range d.site.Users {
		home, err := d.site.Home(user)
		if err != nil {
			return nil, err
		}
		people = append(people, privacy.Person{Name: user, UID: d.uid(user), Home: home})
	}
	store, err := state.Open(d.site.Run(), node)
	if err != nil {
		return nil, err
	}
	runs, damaged := store.Runs()
	old, lost := state.History(d.site.Var(node), node)
	if bad := append(damaged, lost...); len(bad) > 0 {
		return nil, bad[0]
	}
	return privacy.Know(people, append(runs, old...)), nil
}
