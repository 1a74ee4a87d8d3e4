package doctor

import (
	"fmt"
	"path/filepath"
	"strings"

	"bookend/internal/config"
)

// DropOptions are the options with which the drop folder's own file system is mounted, by
// deploy/systemd/run-bookend-drop.mount. A job has up to two folders of one small file in it.
const DropOptions = "size=16M,nr_inodes=8k,mode=0711,nosuid,nodev,noexec"

const areaNode = "Bookend itself"

func nodeChecks() []Check {
	return []Check{
		{
			Name: "config-text", Area: areaNode, Holds: "the configuration can be used, and has no mistakes",
			why: "the hooks observe with the shipped defaults (BKD-CONFIG)", path: configPath, judge: judgeText,
		},
		{
			Name: "drop-filesystem", Area: areaNode,
			Holds: "`/run/bookend/drop` is a tmpfs of its own, as [the unit in deploy/](../deploy/systemd.md) " +
				"mounts it",
			why:  "users write here: without a small tmpfs of its own, one user can fill it for all hooks",
			path: dropFolder, judge: judgeDrop,
			looks: func(s Site) []Look { return []Look{{Paths: []string{dropFolder(s)}, Kind: Folder}} },
		},
	}
}

// judgeText judges the configuration's text as "bookend config check" and the hooks do.
func judgeText(v *view) string {
	switch missing := strings.Contains(v.Unread, "no such file"); {
	case missing && !v.Named:
		return "there is none: the shipped defaults are in force"
	case missing:
		v.wrong("not used: "+v.Unread, "let BOOKEND_CONFIG name a file that exists")
	case v.Unread != "":
		v.wrong("not used: "+v.Unread, "see the check config; bookend config check says whether it is then used")
	case v.Mistakes > 0:
		v.wrong(fmt.Sprintf("not valid: %s (1 of %d)", v.Mistake, v.Mistakes),
			"correct it; bookend config check lists all")
	case len(v.Config.Unused) > 0:
		v.warn(fmt.Sprintf("%s (1 of %d)", v.Config.Unused[0], len(v.Config.Unused)),
			"remove it; bookend config check lists all")
	}
	return fmt.Sprintf("valid: mode %s", v.Config.Mode)
}

func dropFolder(s Site) string { return filepath.Join(s.Config.Paths.Run, "drop") }

// judgeDrop warns before the first hook too: it would make a folder of the tmpfs that all hooks share.
func judgeDrop(v *view) string {
	f := v.seen[0].Files[0]
	switch path := dropFolder(v.Site); {
	case f.Error != "":
		v.unknown(f.Error, "stat "+quoted(path))
	case !f.Tmpfs && path == config.Default().Paths.Run+"/drop":
		v.warn("not a tmpfs of its own", "systemctl enable --now run-bookend-drop.mount   # of deploy/systemd")
	case !f.Tmpfs:
		v.warn("not a tmpfs of its own", fmt.Sprintf(
			"install -d -o root -g root -m 0711 %s && mount -t tmpfs -o %s tmpfs %[1]s", quoted(path), DropOptions))
	}
	return "a tmpfs of its own"
}
