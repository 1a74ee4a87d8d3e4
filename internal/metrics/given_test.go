package metrics

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"bookend/internal/gpu"
)

func figure(n uint64) *uint64 { return &n }

func after(d time.Duration) *time.Duration { return &d }

// looked is a run that saw one card.
func looked(minute int, hook Hook, c GivenCard) Run {
	r := at(minute, hook)
	r.Mode, r.Took, r.Given = "observe", 120*time.Millisecond, []GivenCard{c}
	return r
}

func wants(t *testing.T, got map[string]float64, want map[string]float64) {
	t.Helper()
	for series, value := range want {
		if have, is := got[series]; !is || have != value {
			t.Errorf("%s is %v (%v), want %v", series, have, is, value)
		}
	}
}

// What a later run did not see keeps its figure; what jobs left adds up.
func TestCards(t *testing.T) {
	f := host(t)
	record(t, f,
		looked(0, Epilog, GivenCard{UUID: "GPU-a", Settled: after(0), Left: 600, Probe: gpu.ProbeGap, Gap: figure(70)}),
		looked(1, Prolog, GivenCard{UUID: "GPU-a", Settled: after(2 * time.Second)}),
		looked(2, Epilog, GivenCard{UUID: "GPU-a", Left: 400, Probe: gpu.ProbeSkipped}),
		looked(3, Epilog, GivenCard{UUID: "GPU-b", Settled: after(time.Hour)}),
		looked(4, Epilog, GivenCard{}), // a card of which nobody knows the id
	)
	got := shown(t, f)
	wants(t, got, map[string]float64{
		`bookend_gpu_left_by_jobs_bytes_total{gpu="0",uuid="GPU-a"}`:     1000,
		`bookend_gpu_left_by_jobs_bytes_total{gpu="0",uuid="GPU-b"}`:     0,
		`bookend_gpu_probe_gap_bytes{gpu="0",uuid="GPU-a"}`:              70,
		`bookend_gpu_last_given_timestamp_seconds{gpu="0",uuid="GPU-a"}`: float64(noon.Unix() + 120),
		`bookend_probe_tests_total{result="gap"}`:                        1,
		`bookend_probe_tests_total{result="skipped"}`:                    1,
		`bookend_probe_tests_total{result="broken"}`:                     0,
		`bookend_mode_info{mode="observe"}`:                              1,
		`bookend_settle_seconds_bucket{hook="epilog",le="0.1"}`:          1,
		`bookend_settle_seconds_bucket{hook="epilog",le="12"}`:           1,
		`bookend_settle_seconds_bucket{hook="epilog",le="+Inf"}`:         2,
		`bookend_settle_seconds_sum{hook="epilog"}`:                      3600,
		`bookend_settle_seconds_count{hook="epilog"}`:                    2,
		`bookend_settle_seconds_bucket{hook="prolog",le="1.6"}`:          0,
		`bookend_settle_seconds_bucket{hook="prolog",le="3"}`:            1,
		`bookend_hook_duration_seconds_bucket{hook="epilog",le="0.1"}`:   0,
		`bookend_hook_duration_seconds_bucket{hook="epilog",le="0.25"}`:  4,
		`bookend_hook_duration_seconds_count{hook="prolog"}`:             1,
	})
	for series := range got {
		if strings.Contains(series, `uuid=""`) || strings.Contains(series, `gap_bytes{gpu="0",uuid="GPU-b"}`) {
			t.Errorf("%s, of which nothing is known", series)
		}
	}
}

// A bound belongs to its bucket, and a count is never lost or counted twice.
func TestHistogramBounds(t *testing.T) {
	var b book
	for _, bound := range settleBounds {
		b.observe(settleTime, bound, "epilog")
		b.observe(settleTime, bound+0.001, "epilog")
	}
	b.observe(settleTime, -1, "epilog") // a clock that stepped back
	f, _ := familyOf(settleTime)
	text := f.histogram(b.Samples[0])
	want := 2 // the negative one, and the first bound
	for _, bound := range settleBounds {
		if line := fmt.Sprintf(`bookend_settle_seconds_bucket{hook="epilog",le="%v"} %d`+"\n", bound,
			want); !strings.Contains(text, line) {
			t.Errorf("%q not in\n%s", line, text)
		}
		want += 2
	}
	if line := fmt.Sprintf(`le="+Inf"} %d`+"\n", 2*len(settleBounds)+1); !strings.Contains(text, line) {
		t.Errorf("%q not in\n%s", line, text)
	}
}

// Cards that nobody has named for long, or too many, are forgotten with all that was said of them; nothing else is.
func TestCardsAreForgotten(t *testing.T) {
	f := host(t)
	record(t, f, looked(0, Epilog, GivenCard{UUID: "GPU-old", Left: 1, Gap: figure(1)}))
	day := 24 * 60
	record(t, f, looked(29*day, Epilog, GivenCard{UUID: "GPU-new"}))
	if _, is := shown(t, f)[`bookend_gpu_left_by_jobs_bytes_total{gpu="0",uuid="GPU-old"}`]; !is {
		t.Error("forgotten after 29 days")
	}
	record(t, f, looked(31*day, Epilog, GivenCard{UUID: "GPU-new"}))
	got := shown(t, f)
	for series := range got {
		if strings.Contains(series, "GPU-old") {
			t.Errorf("%s after 31 days", series)
		}
	}
	wants(t, got, map[string]float64{`bookend_gpu_left_by_jobs_bytes_total{gpu="0",uuid="GPU-new"}`: 0,
		`bookend_hook_runs_total{hook="epilog",action="note"}`: 3})
	var many []GivenCard
	for i := range mostCard + 50 {
		many = append(many, GivenCard{UUID: gpu.ID(fmt.Sprintf("MIG-%036d", i)), Left: 1 << 40, Gap: figure(1 << 40)})
	}
	crowd := at(32*day, Epilog)
	crowd.Given = many
	record(t, f, crowd)
	cards := 0
	for series := range shown(t, f) {
		if strings.HasPrefix(series, lastGiven) {
			cards++
		}
	}
	if st, err := os.Stat(f.book()); cards != mostCard || err != nil || st.Size() > maxBook/2 {
		t.Errorf("%d cards, %d bytes, %v", cards, st.Size(), err)
	}
}

// Buckets that are not this program's are damage; counts of before there were any are not.
func TestBucketsOfAnotherKind(t *testing.T) {
	for text, fine := range map[string]bool{
		`{"version":1,"samples":[{"name":"bookend_settle_seconds","labels":["epilog"],"value":3}]}`:                               true,
		`{"version":1,"samples":[{"name":"bookend_settle_seconds","labels":["epilog"],"value":3,"counts":[1,2]}]}`:                false,
		`{"version":1,"samples":[{"name":"bookend_settle_seconds","labels":["epilog"],"value":3,"counts":[0,0,0,0,0,0,0,0,-1]}]}`: false,
		`{"version":1,"samples":[{"name":"bookend_drains_total","labels":["epilog"],"value":3,"counts":[1]}]}`:                    false,
		`{"version":1,"samples":[{"name":"bookend_drains_total","labels":["epilog"],"value":3}]}`:                                 true,
	} {
		b, err := decode([]byte(text))
		if (err == nil) != fine {
			t.Errorf("%s: %v", text, err)
		}
		b.add(looked(0, Epilog, GivenCard{UUID: "GPU-a", Settled: after(0)}))
		if _, err := parse(string(renderedBy(b))); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func renderedBy(b book) []byte { return text(b, "v") }
