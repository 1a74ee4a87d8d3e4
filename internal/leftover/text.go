package leftover

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// removal separates what is left from the command that removes it; package report splits the text there.
const removal = "; remove: "

// Text says what left the remains and what they are, in plain ASCII: no byte of a name that the user chose can end the
// text, or pass for another part of it. jobs are this one and the user's others on record that were on the node, unseen
// is why there may have been something without a record.
func (r Remains) Text(jobs []string, unseen string) string {
	subject := "this job"
	if unseen != "" || len(jobs) > 1 {
		subject = "job " + strings.Join(jobs, " or ")
	}
	if unseen != "" {
		subject += " or something else of its user"
	}
	var parts []string
	if n := len(r.Files); n > 0 {
		parts = append(parts, fmt.Sprintf("%s%s in /dev/shm", count(n, "file"), pattern(r.Files)))
	}
	if n := len(r.Segments); n > 0 {
		parts = append(parts, count(n, "System V segment"))
	}
	for i, o := range r.Others {
		if n := len(o.Files); n > 0 {
			in := " in /dev/" + Others[i].Dir
			parts = append(parts, count(n, Others[i].File)+pattern(o.Files)+in)
		}
	}
	return subject + " left " + strings.Join(parts, " and ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// plain are the characters of names that mean nothing to a shell, a terminal or a reader of the line.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

// pattern returns what the names of all files begin with, as far as it is plain; empty if that is nothing.
func pattern(files []Item) string {
	const longest = 40
	prefix := files[0].Name
	for _, f := range files[1:] {
		for !strings.HasPrefix(f.Name, prefix) {
			prefix = prefix[:len(prefix)-1]
		}
	}
	shown := prefix[:min(len(prefix), longest)]
	shown = shown[:len(shown)-len(strings.TrimLeft(shown, plain))]
	switch {
	case shown == "":
		return ""
	case len(files) == 1 && shown == prefix:
		return " " + shown
	}
	return " " + shown + "*"
}

// Command follows a text with a command that removes the largest of the remains, as many as a line of a report has room
// for; empty without any. It names each by number, not by a name that a shell could misread, and only what is the
// user's and older than seen: a number is another file's after the next boot. dir is where /dev/shm is.
func (r Remains) Command(uid uint32, dir string, seen time.Time) string {
	command, files := find(r.Files, uid, dir, seen)
	ids, segments := numbers(" -m", r.Segments, 30)
	if segments > 0 {
		command += "; ipcrm" + ids
	}
	removed := files + segments
	for i, o := range r.Others {
		next, n := find(o.Files, uid, strings.TrimSuffix(dir, "shm")+Others[i].Dir, seen)
		if len(command)+len(next) <= 200 {
			command, removed = command+next, removed+n
		}
	}
	command = removal + strings.TrimPrefix(command, "; ")
	switch {
	case removed == 0:
		return ""
	case removed < len(r.all()):
		return fmt.Sprintf(" (the command removes the %d largest)", removed) + command
	default:
		return command
	}
}

// find returns a command that removes the first of the files in a directory, and how many these are.
func find(files []Item, uid uint32, dir string, seen time.Time) (command string, n int) {
	const or, form = " -o", "; find %s -maxdepth 1 -type f -user %d -not -newermt @%d '('%s ')' -delete"
	inodes, n := numbers(or+" -inum", files, 60)
	if n > 0 {
		command = fmt.Sprintf(form, dir, uid, seen.Unix()+1, inodes[len(or):])
	}
	return command, n
}

// numbers lists the first items, each after a word, as far as there is room, and returns how many these are.
func numbers(word string, items []Item, room int) (text string, n int) {
	for _, i := range items {
		next := fmt.Sprintf("%s %d", word, i.ID)
		if n > 0 && len(text)+len(next) > room {
			break
		}
		text, n = text+next, n+1
	}
	return text, n
}

// Inodes returns the files in /dev/shm that the command in a text names.
func Inodes(text string) (all []uint64) {
	_, command, _ := strings.Cut(text, removal+"find ")
	find, _, _ := strings.Cut(command, "')'")
	words := strings.Fields(find)
	for i := 1; i < len(words) && strings.HasSuffix(words[0], "/shm"); i++ {
		if id, err := strconv.ParseUint(words[i], 10, 64); err == nil && words[i-1] == "-inum" {
			all = append(all, id)
		}
	}
	return all
}
