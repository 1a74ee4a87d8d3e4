package hook

import (
	"errors"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/maintenance"
	"bookend/internal/record"
	"bookend/test/must"
)

// A repair that could not be put on record is not said to have helped.
func TestOutcomeOfRepair(t *testing.T) {
	of := record.Assigned{Index: 3, Device: gpu.Device{ID: "GPU-a"}}
	for name, tt := range map[string]struct {
		o    maintenance.Repaired
		err  error
		want string
	}{
		"nothing to do":  {maintenance.Repaired{}, nil, ""},
		"proven well":    {maintenance.Repaired{GPU: of}, nil, "GPU 3 (GPU-a) was reset and is proven well; the node's drain is over"},
		"not on record":  {maintenance.Repaired{GPU: of}, errors.New("disk full"), "disk full"},
		"refused":        {maintenance.Repaired{GPU: of, Refused: "a holder"}, nil, "GPU 3 (GPU-a) is not reset: a holder"},
		"failed":         {maintenance.Repaired{GPU: of, Failed: "it died"}, nil, "GPU 3 (GPU-a): BKD-RESET: it died"},
		"failed, unsaid": {maintenance.Repaired{GPU: of, Failed: "it died"}, errors.New("slurmctld is silent"), "it died; slurmctld is silent"},
	} {
		text, _ := became(tt.o, tt.err)
		must.Be(t, name, text, tt.want)
	}
}
