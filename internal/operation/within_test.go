package operation

import (
	"encoding/json"
	"strings"
	"testing"

	"bookend/internal/attrib"
)

// What /proc knows of as many processes as a driver may list fits the answer: the last lose what matters least.
func TestAnswerFits(t *testing.T) {
	for name, tt := range map[string]struct{ all, whole int }{"a few": {480, 480}, "all of 16 GPUs": {16 * 950, 1000}} {
		var all []attrib.Process
		for pid := range tt.all {
			all = append(all, attrib.Process{PID: pid + 1, Name: strings.Repeat("\x01", 15), Exe: strings.Repeat("\x01", 200)})
		}
		all = within(all, maxReply)
		data, err := json.Marshal(all)
		if err != nil || len(data) >= maxReply || len(all) != tt.all || all[tt.whole-1].Exe == "" || all[tt.all-1].PID != tt.all {
			t.Errorf("%s: %d bytes, %v, %+v", name, len(data), err, all[tt.all-1])
		}
	}
}
