package asuser

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/child"
	"bookend/internal/safefile"
)

const (
	lookupTimeout   = 500 * time.Millisecond // a name service that hangs costs half of the append's second
	maxLookupOutput = 256 << 10              // some 23,000 groups of 10 digits
	maxGroups       = 1 << 16                // NGROUPS_MAX since Linux 2.6.4
)

// noID is "leave unchanged" to setresuid and its kin, and so no id.
const noID = ^uint32(0)

// lookup is a program that prints a user's groups; the user's name is added to args.
type lookup struct {
	paths  []string
	args   []string
	prefix bool // the line begins with the user's name
}

// lookups ask the system's name service in a program of the system: a static hook has no NSS of its own.
func lookups() []lookup {
	return []lookup{
		{[]string{"/usr/bin/getent", "/bin/getent"}, []string{"initgroups"}, true},
		{[]string{"/usr/bin/id", "/bin/id"}, []string{"-G", "--"}, false},
	}
}

// Groups returns the groups of a user, the primary gid first, as the system's name service knows them; only gid
// when that does not answer within half a second. Group 0 is left out: nothing of root's is needed.
func Groups(uid, gid uint32, user string) []uint32 {
	return groupsFrom(lookups(), uid, gid, user)
}

func groupsFrom(from []lookup, uid, gid uint32, user string) []uint32 {
	if !plainName(user) || otherID(user, uid) {
		return []uint32{gid}
	}
	for _, l := range from {
		groups, err := l.run(user)
		if err == nil {
			return withPrimary(gid, groups)
		}
		if errors.Is(err, errNoAnswer) {
			break // the next program would ask the same name service
		}
	}
	return []uint32{gid}
}

var errNoAnswer = errors.New("no answer")

func (l lookup) run(user string) ([]uint32, error) {
	for _, path := range l.paths {
		// Threat: a program that somebody else could have put there would run as root.
		if safefile.Trusted(path) != nil {
			continue
		}
		res := child.Run(child.Spec{
			Path: path, Args: slices.Concat(l.args, []string{user}), MaxOutput: maxLookupOutput, Timeout: lookupTimeout,
		})
		switch {
		case res.Outcome == child.Hung || res.Outcome == child.Abandoned:
			return nil, fmt.Errorf("list groups with %q: %w", path, errNoAnswer)
		case res.Outcome != child.Exited || res.ExitCode != 0:
			return nil, fmt.Errorf("list groups with %q: %s, exit code %d", path, res.Outcome, res.ExitCode)
		case l.prefix:
			return parseGroups(user, string(res.Stdout))
		}
		return parseGroups("", string(res.Stdout))
	}
	return nil, errors.New("list groups: no trusted program")
}

// plainName refuses names that could be taken for an option, for more than a name, or, by id(1), for a number.
func plainName(user string) bool {
	if user == "" || len(user) > 256 || user[0] == '-' || user[0] == '+' {
		return false
	}
	return strings.IndexFunc(user, func(r rune) bool { return r <= ' ' || r == 0x7f || r == ':' || r == '/' }) < 0
}

// otherID tells a name that id(1) would take for another user's number.
func otherID(user string, uid uint32) bool {
	n, err := strconv.ParseUint(user, 10, 64)
	return (err == nil || errors.Is(err, strconv.ErrRange)) && n != uint64(uid)
}

// parseGroups reads one line: name, if any, and decimal group ids. Anything else is an error.
func parseGroups(name, out string) ([]uint32, error) {
	line, found := strings.CutPrefix(strings.TrimSuffix(out, "\n"), name)
	if !found || strings.ContainsAny(line, "\n\x00") {
		return nil, errors.New("parse groups: not one line of this user")
	}
	fields := strings.Fields(line)
	if name != "" && len(fields) > 0 && line[0] != ' ' {
		return nil, errors.New("parse groups: another user")
	}
	if len(fields) > maxGroups {
		return nil, fmt.Errorf("parse groups: %d of them", len(fields))
	}
	groups := make([]uint32, 0, len(fields))
	for _, f := range fields {
		g, err := strconv.ParseUint(f, 10, 32)
		if err != nil || uint32(g) == noID {
			return nil, fmt.Errorf("parse groups: %.20q is no group id", f)
		}
		groups = append(groups, uint32(g))
	}
	return groups, nil
}

func withPrimary(gid uint32, groups []uint32) []uint32 {
	all := []uint32{gid}
	for _, g := range groups {
		if g != 0 && !slices.Contains(all, g) && len(all) < maxGroups {
			all = append(all, g)
		}
	}
	return all
}
