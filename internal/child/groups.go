package child

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/safefile"
)

const (
	lookupTimeout   = 500 * time.Millisecond // a name service that hangs costs half of the append's second
	maxLookupOutput = 256 << 10              // some 23,000 groups of 10 digits
	maxGroups       = 1 << 16                // NGROUPS_MAX since Linux 2.6.4
)

// noID is "leave unchanged" to setresuid and its kin, and so no id.
const noID = ^uint32(0)

// lookups print a user's groups: they ask the system's name service in a program of the system, for a static hook has
// no NSS of its own.
var lookups = []string{"/usr/bin/id", "/bin/id"}

// Groups returns the groups of a user, the primary gid first, as the system's name service knows them; only gid
// when that does not answer within half a second. Group 0 is left out: nothing of root's is needed.
func Groups(uid, gid uint32, user string) []uint32 {
	return groupsFrom(lookups, uid, gid, user)
}

func groupsFrom(programs []string, uid, gid uint32, user string) []uint32 {
	if !plainName(user) || otherID(user, uid) {
		return []uint32{gid}
	}
	groups, err := ask(programs, user)
	if err != nil {
		return []uint32{gid}
	}
	return withPrimary(gid, groups)
}

func ask(programs []string, user string) ([]uint32, error) {
	// Threat: a program that somebody else could have put there would run as root.
	at := slices.IndexFunc(programs, func(path string) bool { return safefile.Trusted(path) == nil })
	if at < 0 {
		return nil, errors.New("list groups: no trusted program")
	}
	res := Run(Spec{
		Path: programs[at], Args: []string{"-G", "--", user}, MaxOutput: maxLookupOutput, Timeout: lookupTimeout,
	})
	if res.Outcome != Exited || res.ExitCode != 0 {
		return nil, fmt.Errorf("list groups with %q: %s, exit code %d", programs[at], res.Outcome, res.ExitCode)
	}
	return parseGroups(string(res.Stdout))
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

// parseGroups reads one line of decimal group ids. Anything else is an error.
func parseGroups(out string) ([]uint32, error) {
	line := strings.TrimSuffix(out, "\n")
	if strings.ContainsAny(line, "\n\x00") {
		return nil, errors.New("parse groups: not one line")
	}
	fields := strings.Fields(line)
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
