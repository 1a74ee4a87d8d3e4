package probe

import (
	"errors"
	"slices"
	"strings"
)

// Changes runs commands of a plan, and remembers the commands that put back what they change.
type Changes struct {
	Run  func(command ...string) (text string, err error) // bounded
	Keep func(left [][]string) error                      // stores what is left to put back, before it is changed
	Say  func(what any)                                   // reports each command, and what fails
	left [][]string                                       // the newest last
}

// Do runs a command, and returns what it printed. undo puts back what it changes, also if it fails; empty for nothing.
func (c *Changes) Do(do, undo []string) (string, error) {
	if len(undo) > 0 {
		c.left = append(c.left, undo)
		if err := c.Keep(c.left); err != nil {
			c.left = c.left[:len(c.left)-1]
			return "", err
		}
	}
	c.Say(strings.Join(do, " "))
	return c.Run(do...)
}

// Back puts back all but the first changes, the newest first. What that fails for is left.
func (c *Changes) Back(first int) {
	var failed [][]string
	for n := len(c.left); n > first; n-- {
		undo := c.left[n-1]
		_, err := c.Do(undo, nil)
		c.left = c.left[:n-1]
		if err != nil {
			failed = append([][]string{undo}, failed...)
		}
		if err = errors.Join(err, c.Keep(slices.Concat(c.left, failed))); err != nil {
			c.Say(err)
		}
	}
	c.left = append(c.left, failed...)
}

// Undone returns the commands that are left to run, in their order.
func (c *Changes) Undone() [][]string {
	left := slices.Clone(c.left)
	slices.Reverse(left)
	return left
}
