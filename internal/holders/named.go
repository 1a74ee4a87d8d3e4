package holders

import (
	"errors"

	"bookend/internal/slurm"
)

// Named lists the job's processes of one name (comm), which any process may give itself, in order of PID. Whose a process is
// is decided as for OpenDevices. With ErrPartial the list holds what was found.
func Named(proc, name string, uid uint32, in slurm.Owner) ([]int, error) {
	pids, err := listPIDs(proc)
	if err != nil && !errors.Is(err, ErrPartial) {
		return nil, err
	}
	s := scan{uid: uid, in: in}
	var found []int
	for _, pid := range pids {
		if s.named(proc, name, pid) {
			found = append(found, pid)
		}
	}
	return found, err
}

func (s *scan) named(proc, name string, pid int) bool {
	f, err := openFolder(proc, pid)
	if err != nil {
		return false // ended
	}
	defer f.close()
	st, err := f.stat()
	return err == nil && st.name == name && s.ours(f)
}
