package fakegpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"bookend/internal/inventory"
)

// Slurm writes into a new directory what Slurm has to say of a world's GPUs: slurm.conf and gres.conf of a node that
// gives out all of them, sorted by minor, and a slurmd that lists them as version 24.11 does. It returns the keys for
// the slurm section of a configuration.
func (w *World) Slurm(dir, node string) (keys string, err error) {
	cards, err := inventory.Read(w.DriverProc())
	if err != nil {
		return "", err
	}
	minors := map[int]bool{}
	for _, c := range cards {
		if c.Device.Minor != nil && !c.Excluded {
			minors[*c.Device.Minor] = true
		}
	}
	var files []string
	var list strings.Builder
	for n := range 256 {
		if minors[n] {
			files = append(files, fmt.Sprint(n))
			fmt.Fprintf(&list, "slurmd: Gres Name=gpu Type=(null) Count=1 Index=%d ID=7696487 File=/dev/nvidia%d "+
				"Links=(null) Flags=HAS_FILE,ENV_NVML\n", n, n)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	for name, text := range map[string]string{
		"slurm.conf": fmt.Sprintf("ClusterName=lab\nGresTypes=gpu\nSlurmdPidFile=%s/slurmd.pid\nNodeName=%s "+
			"Gres=gpu:%d State=UNKNOWN\n", dir, node, len(files)),
		"gres.conf": fmt.Sprintf("Name=gpu File=/dev/nvidia[%s]\n", strings.Join(files, ",")),
		"slurmd":    "#!/bin/sh\ncat >&2 <<'end'\n" + list.String() + "end\n",
	} {
		if err := replace(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("gres_conf: %[1]s/gres.conf, slurmd: %[1]s/slurmd", dir), nil
}
