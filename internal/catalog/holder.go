package catalog

import (
	_ "embed"
	"strings"
)

// HolderKind is a kind of process that keeps GPU memory although the script that used it has ended.
type HolderKind struct {
	Name  string // as bookend explain takes it
	Shown string // next to the process, in a job's log
	Why   string // the end of a script does not end it
	Fix   string // for the process's owner; ID stands for a container's id, HOST for the job's first node
}

//go:embed holders.txt
var holderTable string

func HolderKindOf(name string) (HolderKind, bool) {
	for _, f := range Rows(holderTable, 4) {
		if strings.EqualFold(name, f[0]) {
			return HolderKind{f[0], f[1], f[2], strings.Join(f[3:], " | ")}, true
		}
	}
	return HolderKind{}, false
}

// Topic explains what has a name and no code: expedited requeue, and kinds of holders. It is empty if there is none.
func Topic(name string) string {
	k, is := HolderKindOf(name)
	switch {
	case strings.EqualFold(name, "requeue"), strings.EqualFold(name, "expedited requeue"):
		return requeueFile
	case is:
		shown := "a process " + k.Shown + " that keeps GPU memory"
		return Paragraph(k.Name, shown, [2]string{"means", k.Why}, [2]string{"do", k.Fix})
	}
	return ""
}
