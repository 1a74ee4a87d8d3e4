// Package slurmconf parses slurm.conf, gres.conf and files of the same format, and decides what Slurm's GPU numbers
// mean on a node. It is pure: package slurmcmd reads the files and runs `slurmd -G`.
package slurmconf

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"bookend/internal/slurm"
)

const (
	// MaxBytes bounds the length of a file: that of a large cluster has some 100 KiB.
	MaxBytes = 1 << 20
	// MaxIncluded bounds the number of included files, which may include each other without end.
	MaxIncluded = 64
)

// Files are the two files of one Slurm configuration. gres.conf is always next to slurm.conf.
type Files struct{ Slurm, Gres string }

// Find returns the likely places of slurmd's files, best first: slurm.gres_conf, SLURM_CONF, the packages' directories.
func Find(gresConf, slurmConf string) []Files {
	const slurmFile, gresFile = "slurm.conf", "gres.conf"
	switch {
	case gresConf != "":
		return []Files{{path.Join(path.Dir(gresConf), slurmFile), gresConf}}
	case path.IsAbs(slurmConf):
		return []Files{{slurmConf, path.Join(path.Dir(slurmConf), gresFile)}}
	}
	var all []Files
	for _, folder := range Dirs() {
		all = append(all, Files{path.Join(folder, slurmFile), path.Join(folder, gresFile)})
	}
	return all
}

// sentDir has what slurmctld sent, also if that lies in slurmd's or sackd's own directory.
const sentDir = "/run/slurm/conf"

// Dirs are the directories of slurmd's configuration: fetched from slurmctld (configless), or of packages.
func Dirs() []string {
	return []string{sentDir, "/etc/slurm", "/etc/slurm-llnl", "/var/spool/slurmd/conf-cache", "/usr/local/etc"}
}

type File struct {
	Path   string
	Text   []byte
	Unread string
}

// Conf is a file with all the files that it includes, in place.
type Conf struct {
	Path  string   `json:"path"`
	Lines []Line   `json:"lines"`
	Files []string `json:"files,omitempty"` // names of all files that were read or could not be read
}

// Parse parses a file. open returns the files that an absolute name in an Include leads to, in order: several if it is
// a pattern, none if there is no such file. Without open, every Include stays an unread line.
func Parse(file string, text []byte, open func(name string) []File) Conf {
	r := reader{conf: Conf{Path: file}, open: open}
	r.read(File{Path: file, Text: text})
	return r.conf
}

type reader struct {
	conf     Conf
	open     func(name string) []File
	included int
}

func (r *reader) read(f File) {
	r.conf.Files = append(r.conf.Files, f.Path)
	for _, l := range parseLines(f.Path, string(f.Text)) {
		if l.Include != "" && r.open != nil {
			l.Why = r.include(l)
			if l.Why == "" {
				continue
			}
		}
		r.conf.Lines = append(r.conf.Lines, l)
	}
}

func (r *reader) include(l Line) (why string) {
	name := strings.Trim(l.Include, `"`)
	if r.included >= MaxIncluded {
		return fmt.Sprintf("more than %d files", MaxIncluded)
	}
	if cluster, ok := r.conf.Get("ClusterName"); ok {
		name = strings.ReplaceAll(name, "%c", strings.ToLower(cluster.Text))
	}
	files := r.open(under(path.Dir(r.conf.Path), name))
	if len(files) == 0 || files[0].Unread != "" { // before Slurm 23.02 it is next to the file that includes it
		files = r.open(under(path.Dir(l.File), name))
	}
	if len(files) == 0 {
		return "no such file"
	}
	for _, f := range files {
		r.included++
		if f.Unread == "" {
			r.read(f)
			continue
		}
		r.conf.Files, why = append(r.conf.Files, f.Path), f.Unread
	}
	return why
}

func under(dir, name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(dir, name)
}

type Value struct {
	Text string
	Line Line
}

func (c Conf) All(key string) (all []Value) {
	for _, l := range c.Lines {
		if text, ok := l.Get(key); ok {
			all = append(all, Value{text, l})
		}
	}
	return all
}

// Get returns the value of a key. Of several lines the last counts, as for Slurm. An empty value counts as none.
func (c Conf) Get(key string) (Value, bool) {
	all := c.All(key)
	if len(all) == 0 {
		return Value{}, false
	}
	last := all[len(all)-1]
	return last, last.Text != ""
}

// Doubt returns why the file may contain more than was read, or nothing.
func (c Conf) Doubt() string {
	for _, l := range c.Lines {
		if why := l.Unreadable(); why != "" {
			return why
		}
	}
	return ""
}

// HasWord reports whether a list, "Alloc,Contain", has a word, whatever follows it after a colon, "=" or "(".
func HasWord(list, word string) bool {
	return slices.ContainsFunc(slurm.Elements(list), func(element string) bool {
		element, _, _ = strings.Cut(strings.NewReplacer("(", ":", "=", ":").Replace(element), ":")
		return word != "" && strings.EqualFold(strings.TrimSpace(element), word)
	})
}

// Expedites reports whether an epilog's exit status decides if a failed job starts again: if the word is anywhere.
func (c Conf) Expedites() slurm.Answer {
	const word = "enable_expedited_requeue"
	switch v, _ := c.Get("SlurmctldParameters"); {
	case strings.Contains(strings.ToLower(v.Text), word):
		return slurm.Yes
	case c.Doubt() != "":
		return slurm.Unknown
	}
	return slurm.No
}

// Contains reports whether a node list names a node. known is false if a part that cannot be read may name it.
func Contains(list, node string) (is, known bool) {
	known = true
	for _, element := range slurm.Elements(list) {
		names, ok := slurm.Expand(element)
		if slices.Contains(names, node) {
			return true, true
		}
		known = known && ok
	}
	return false, known
}

type Node struct {
	Found  bool
	Unsure string // why it may be different; empty if there is no doubt
	Gres   string
}

// Node returns the entry of a node. NodeName=DEFAULT applies to the lines that follow.
func (c Conf) Node(name string) Node {
	defaults, unsure := "", c.Doubt()
	for _, l := range c.Lines {
		list, names := l.Get("NodeName")
		gres, stated := l.Get("Gres")
		here, known := Contains(list, name)
		switch {
		case !names:
		case strings.EqualFold(list, "DEFAULT") && stated:
			defaults = gres
		case here && stated:
			return Node{Found: true, Gres: gres}
		case here: // what was not read may have another default
			return Node{Found: true, Gres: defaults, Unsure: unsure}
		case !known:
			unsure = fmt.Sprintf("%s: the node list %.80q is not understood", l.Where(), list)
		}
	}
	if _, ok := c.Get("MaxNodeCount"); ok && unsure == "" {
		unsure = "slurm.conf has MaxNodeCount: what a dynamic node has is not in it"
	}
	return Node{Unsure: unsure}
}

// Partitions returns those of slurm.conf. "scontrol create" can add others until slurmctld restarts.
func (c Conf) Partitions() (names []string) {
	for _, v := range c.All("PartitionName") {
		if v.Text != "" && !strings.EqualFold(v.Text, "DEFAULT") {
			names = append(names, v.Text)
		}
	}
	return names
}

// Line is one logical line of a Slurm configuration file: pairs of key and value. Case does not matter in keys.
type Line struct {
	File   string      `json:"file,omitempty"`
	Number int         `json:"number"` // of its first line in the file, from 1
	Pairs  [][2]string `json:"pairs,omitempty"`
	// Include is the file name in an unread Include line, which has no pairs; Why is why it was not read.
	Include string `json:"include,omitempty"`
	Why     string `json:"why,omitempty"`
	Rest    string `json:"rest,omitempty"` // what is not a pair: Slurm would not start with it
}

// Where names the line: its file, without the directory, and its number.
func (l Line) Where() string { return fmt.Sprintf("%s line %d", path.Base(l.File), l.Number) }

func (l Line) Get(key string) (string, bool) {
	for i := len(l.Pairs) - 1; i >= 0; i-- {
		if strings.EqualFold(l.Pairs[i][0], key) {
			return l.Pairs[i][1], true
		}
	}
	return "", false
}

// Unreadable returns why a line may contain more than was read of it, or nothing.
func (l Line) Unreadable() string {
	switch {
	case l.Include != "":
		why := fmt.Sprintf("%s includes %.80q, which is not read: %s", l.Where(), l.Include, l.Why)
		return strings.TrimSuffix(why, ": ")
	case l.Rest != "":
		return fmt.Sprintf("%s could not be read: %.40q", l.Where(), l.Rest)
	}
	return ""
}

const blanks = " \t\r"

// parseLines reads text as Slurm does: a comment ends its line, then a backslash at the end joins the next line.
func parseLines(file, text string) (all []Line) {
	line, number, first, pair := "", 0, 1, regexp.MustCompile(pair)
	for raw := range strings.SplitSeq(text+"\n", "\n") {
		number++
		part, joins := uncommented(raw)
		if line += part; joins {
			line += " "
			continue
		}
		if l := parseLine(line, pair); l.Include != "" || l.Rest != "" || len(l.Pairs) > 0 {
			l.File, l.Number = file, first
			all = append(all, l)
		}
		line, first = "", number+1
	}
	return all
}

// uncommented removes a comment, and a backslash before blanks and a comment, which joins the next line.
func uncommented(raw string) (text string, joins bool) {
	var b strings.Builder
	for i := 0; i < len(raw) && raw[i] != '#'; i++ {
		if raw[i] == '\\' {
			rest := strings.TrimLeft(raw[i+1:], blanks)
			if rest == "" || rest[0] == '#' && len(rest) < len(raw)-i-1 {
				return b.String(), true
			}
			i++
		}
		b.WriteByte(raw[i])
	}
	return b.String(), false
}

// pair is Slurm's own expression for a pair: "Key=value", `Key = "a value"`, "Key+=value".
const pair = `^([[:alnum:]_.]+)\s*[-*+/]?=\s*(?:"([^"]*)"|(\S+))(?:\s+|$)`

func parseLine(s string, pair *regexp.Regexp) (l Line) {
	s = strings.Trim(s, blanks)
	if i := strings.IndexAny(s, blanks); i >= 0 && strings.EqualFold(s[:i], "include") {
		if file := strings.Trim(s[i:], blanks); file[0] != '=' {
			return Line{Include: file}
		}
	}
	for s != "" {
		found := pair.FindStringSubmatch(s)
		if found == nil {
			l.Rest = s
			return l
		}
		l.Pairs = append(l.Pairs, [2]string{found[1], found[2] + found[3]})
		s = s[len(found[0]):]
	}
	return l
}
