package hook

import (
	"errors"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/probe"
	"bookend/internal/record"
	"bookend/test/must"
)

// A repair that could not be put on record is not said to have helped.
func TestOutcomeOfRepair(t *testing.T) {
	of := record.Assigned{Index: 3, Device: gpu.Device{ID: "GPU-a"}}
	for name, tt := range map[string]struct {
		o    probe.Repaired
		err  error
		want string
	}{
		"nothing to do":  {probe.Repaired{}, nil, ""},
		"proven well":    {probe.Repaired{GPU: of}, nil, "GPU 3 (GPU-a) was reset and is proven well; the node's drain is over"},
		"not on record":  {probe.Repaired{GPU: of}, errors.New("disk full"), "disk full"},
		"refused":        {probe.Repaired{GPU: of, Refused: "a holder"}, nil, "GPU 3 (GPU-a) is not reset: a holder"},
		"failed":         {probe.Repaired{GPU: of, Failed: "it died"}, nil, "GPU 3 (GPU-a): BKD-RESET: it died"},
		"failed, unsaid": {probe.Repaired{GPU: of, Failed: "it died"}, errors.New("slurmctld is silent"), "it died; slurmctld is silent"},
	} {
		text, _ := became(tt.o, tt.err)
		must.Be(t, name, text, tt.want)
	}
}
