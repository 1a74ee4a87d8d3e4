package condition

import (
	_ "embed"
	"strings"
	"sync"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
)

// Row is one line of the table: a fact with a value, and what follows from it.
type Row struct {
	Fact    gpu.FactCode
	Value   string // the word itself, or a description if it is compared
	Code    catalog.Code
	Meaning string // for an admin: also what was observed
	Asks    string // what NVIDIA calls for
	Doubt   string // why it never proves a GPU unusable; empty if it may

	judge judge
}

var expected = map[catalog.Code]string{
	catalog.Recovery: "no recovery asked for", catalog.RemapFailed: "no failed remapping",
	catalog.RemapPending: "no pending remapping", catalog.Pages: "no pages waiting",
	catalog.ECC:    "no uncorrectable memory errors",
	catalog.Fabric: "a GPU in its NVLink fabric", catalog.Persistence: "persistence mode on",
	catalog.Throttle: "full clocks", catalog.Blocked: "a compute mode that lets programs in",
	catalog.Exclusive: "the default compute mode",
	catalog.Xid:       "no Xid on the GPU during the job", catalog.XidFatal: "no Xid on the GPU during the job",
	catalog.KernelLog: "no fault of GPUs and their links in the kernel log",
}

//go:embed facts.txt
var factTable string

// factRows has the rows of facts.txt.
var factRows = sync.OnceValue(func() (all []Row) {
	judges := map[string]judge{"equal": equal, "another": another, "underWay": underWay, "counted": counted,
		"slowed": slowed}
	for _, f := range catalog.Rows(factTable, 6) {
		all = append(all, Row{gpu.FactCode(f[0]), f[1], catalog.Code(f[3]), f[4], f[5], strings.Join(f[6:], ""),
			judges[f[2]]})
	}
	return all
})
