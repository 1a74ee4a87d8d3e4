package child

import (
	"strings"
	"testing"
)

func TestPanicInParallelIsAnError(t *testing.T) {
	results, err := Parallel(3, func(i int) int {
		if i == 1 {
			panic("broken")
		}
		return i
	})
	if err == nil || !strings.Contains(err.Error(), "broken") || results != nil {
		t.Errorf("got %v, %v", results, err)
	}
}
