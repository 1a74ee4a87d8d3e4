// Package slurmconf reads slurm.conf, and the files beside it that are written alike, with all that they include. It is
// pure: package slurmfiles hands the texts in.
package slurmconf

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// MaxBytes is the longest file worth reading: that of a large cluster has some 100 KiB.
const MaxBytes = 1 << 20

// MaxDepth is how deep files may include each other. Slurm has no such limit, and no site needs it.
const MaxDepth = 8

// MaxIncluded is how many files are read in all, each as often as it is included: files that include each other would
// else have no end.
const MaxIncluded = 256

// File is a file as it was found, or why it could not be read.
type File struct {
	Path   string
	Text   []byte
	Unread string
}

// Conf is a file with all that it includes, in place.
type Conf struct {
	Path  string `json:"path"`
	Lines []Line `json:"lines"`
	// Files are the names of all that was read, or that could not be.
	Files []string `json:"files,omitempty"`
	// Wanted are the names of included files that were not handed in: absolute, and patterns where the Include has
	// wildcards.
	Wanted []string `json:"wanted,omitempty"`
}

// Parse reads a file. included are the files found under each name that an earlier Parse wanted; whoever has none hands
// in nil, and every Include stays a line that is not read. A name with several files stands for all of them, in their
// order.
func Parse(file string, text []byte, included map[string][]File) Conf {
	r := reader{conf: Conf{Path: file}, included: included}
	r.read(File{Path: file, Text: text}, []string{file})
	slices.Sort(r.conf.Wanted)
	r.conf.Wanted = slices.Compact(r.conf.Wanted)
	return r.conf
}

// reader joins files in the order in which Slurm reads them.
type reader struct {
	conf     Conf
	included map[string][]File
	files    int    // read so far
	cluster  string // ClusterName, as soon as it is read: %c in an Include stands for it
}

func (r *reader) read(f File, within []string) {
	r.conf.Files = append(r.conf.Files, f.Path)
	for _, l := range Lines(f.Path, f.Text) {
		if name, ok := l.Get("ClusterName"); ok {
			r.cluster = strings.ToLower(name)
		}
		if l.Include == "" {
			r.conf.Lines = append(r.conf.Lines, l)
			continue
		}
		r.include(l, within)
	}
}

// include reads what a line includes, or leaves the line with the reason why it is not read.
func (r *reader) include(l Line, within []string) {
	name, why := r.named(l)
	files, have := r.included[name]
	switch {
	case why != "":
	case len(within) > MaxDepth:
		why = fmt.Sprintf("more than %d files deep", MaxDepth)
	case !have:
		r.conf.Wanted = append(r.conf.Wanted, name)
	case len(files) == 0:
		why = "no such file"
	}
	if why != "" || !have {
		l.Why = why
		r.conf.Lines = append(r.conf.Lines, l)
		return
	}
	for _, f := range files {
		switch {
		case f.Unread != "":
			r.conf.Files = append(r.conf.Files, f.Path)
			l.Why = f.Unread
			r.conf.Lines = append(r.conf.Lines, l)
		case slices.Contains(within, f.Path):
			l.Why = "it includes itself"
			r.conf.Lines = append(r.conf.Lines, l)
		case r.files >= MaxIncluded:
			l.Why = fmt.Sprintf("more than %d files", MaxIncluded)
			r.conf.Lines = append(r.conf.Lines, l)
			return
		default:
			r.files++
			r.read(f, append(slices.Clone(within), f.Path))
		}
	}
}

// named is the absolute name that a line includes: a relative one is looked for beside the file that includes it.
func (r *reader) named(l Line) (name, why string) {
	name = strings.Trim(l.Include, `"`)
	if strings.Contains(name, "%c") {
		if r.cluster == "" {
			return "", "%c stands before ClusterName"
		}
		name = strings.ReplaceAll(name, "%c", r.cluster)
	}
	if !path.IsAbs(name) {
		name = path.Join(path.Dir(l.File), name)
	}
	return name, ""
}

// Value is what a line gives a key.
type Value struct {
	Text string
	Line Line
}

// All are the values of a key, one for each line that has it, in their order.
func (c Conf) All(key string) (all []Value) {
	for _, l := range c.Lines {
		if _, other := l.first(); other {
			continue
		}
		if text, ok := l.Get(key); ok {
			all = append(all, Value{text, l})
		}
	}
	return all
}

// Get is the value of a key: of several lines the last counts, as for Slurm. An empty value is none.
func (c Conf) Get(key string) (Value, bool) {
	all := c.All(key)
	if len(all) == 0 {
		return Value{}, false
	}
	return all[len(all)-1], true
}

// Crowded is the first line that gives several of the cluster's keys: Slurm takes one a line, and does not start.
func (c Conf) Crowded() (Line, bool) {
	for _, l := range c.Lines {
		if _, describes := l.first(); !describes && len(l.Pairs) > 1 {
			return l, true
		}
	}
	return Line{}, false
}

// first reports a line that describes a node, a partition or the like: its keys are not the cluster's.
func (l Line) first() (key string, describes bool) {
	if len(l.Pairs) == 0 {
		return "", false
	}
	key = l.Pairs[0][0]
	return key, slices.ContainsFunc([]string{"NodeName", "PartitionName", "NodeSet", "DownNodes", "FrontendName", "SlurmctldHost"}, func(k string) bool {
		return strings.EqualFold(k, key)
	}) && len(l.Pairs) > 1
}

// Doubt says why there may be more than was read; empty where there is nothing.
func (c Conf) Doubt() string {
	for _, l := range c.Lines {
		if why := l.Unreadable(); why != "" {
			return why
		}
	}
	return ""
}

// Words are the parts of a list of words, "Alloc,Contain", without what stands behind a colon or an equals sign.
func Words(list string) []string {
	var all []string
	for element := range strings.SplitSeq(list, ",") {
		if end := strings.IndexAny(element, ":(="); end >= 0 {
			element = element[:end]
		}
		if element = strings.TrimSpace(element); element != "" {
			all = append(all, element)
		}
	}
	return all
}

// HasWord reports whether a list of words has one, whatever its case.
func HasWord(list, word string) bool {
	return slices.ContainsFunc(Words(list), func(w string) bool { return strings.EqualFold(w, word) })
}

// Node is what slurm.conf says of one node.
type Node struct {
	Found bool
	// Unsure is why it may say something else; empty where it does not.
	Unsure string
	Gres   string
	Line   Line
}

// Node looks a node up. NodeName=DEFAULT holds for the lines behind it.
func (c Conf) Node(name string) Node {
	var n Node
	defaults, doubt := "", ""
	for _, l := range c.Lines {
		if why := l.Unreadable(); why != "" {
			doubt = why
		}
		list, ok := l.Get("NodeName")
		if !ok {
			continue
		}
		gres, stated := l.Get("Gres")
		if strings.EqualFold(list, "DEFAULT") {
			if stated {
				defaults = gres
			}
			continue
		}
		here, known := Contains(list, name)
		switch {
		case here && stated:
			return Node{Found: true, Gres: gres, Line: l}
		case here:
			n = Node{Found: true, Gres: defaults, Line: l}
			if doubt != "" {
				n.Unsure = fmt.Sprintf("%s: what Gres %.80q has is not sure: %s", l.Where(), list, doubt)
			}
		case !known:
			doubt = fmt.Sprintf("%s: the node list %.80q is not understood", l.Where(), list)
		}
	}
	if !n.Found {
		n.Unsure = doubt
	}
	return n
}

// NodeOn is the name of the one node that a line places on a host; empty where there is none, or are several.
func (c Conf) NodeOn(host string) string {
	found := ""
	for _, l := range c.Lines {
		on, _ := l.Get("NodeHostname")
		name, ok := l.Get("NodeName")
		if !ok || on != host || strings.ContainsAny(name, "[,") {
			continue
		}
		if found != "" && found != name {
			return ""
		}
		found = name
	}
	return found
}
