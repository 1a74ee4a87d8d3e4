package view

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"bookend/internal/answer"
	"bookend/internal/code"
	"bookend/internal/config"
)

func TestFold(t *testing.T) {
	for name, tt := range map[string]struct {
		line string
		hang int
		want string
	}{
		"short":     {"a line", 4, "a line"},
		"just fits": {strings.Repeat("a", 40), 4, strings.Repeat("a", 40)},
		"broken at a blank": {strings.Repeat("a", 30) + " " + strings.Repeat("b", 10), 4, strings.Repeat("a", 30) +
			"\n    " + strings.Repeat("b", 10)},
		"no blank":    {strings.Repeat("a", 90), 4, strings.Repeat("a", 90)},
		"a long word": {"x " + strings.Repeat("a", 50) + " y", 0, "x\n" + strings.Repeat("a", 50) + "\ny"},
		"columns stay": {"  GPU 0   " + strings.Repeat("a", 25) + " " + strings.Repeat("b", 10), 10,
			"  GPU 0   " + strings.Repeat("a", 25) + "\n          " + strings.Repeat("b", 10)},
		"colour has no size": {red + strings.Repeat("a", 30) + normal + " bbbbbbbbb", 4, red + strings.Repeat("a", 30) +
			normal + " bbbbbbbbb"},
		"many lines": {strings.TrimSpace(strings.Repeat("abcde ", 20)), 0,
			strings.Repeat(strings.TrimSpace(strings.Repeat("abcde ", 6))+"\n", 3) + "abcde abcde"},
	} {
		if got := Fold(tt.line, 40, tt.hang); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	for line, want := range map[string]int{
		"start: one two": 4, "  trouble: one": 6, "    process:  PID 7": 14,
		"    YES          own use          GPU 0: it": 34, "plain": 4,
		"  " + red + "BKD" + normal + "  text": 7, "2026-11-21 09:00:00  4  found": 24,
	} {
		if got := hangOf(line, 80); got != want {
			t.Errorf("%q hangs at %d, want %d", line, got, want)
		}
	}
}

// On a terminal nothing but this package's colours gets through, and without colour nothing at all.
func TestColoursAlone(t *testing.T) {
	const hostile = "a\x1b[2Jb\x1b]0;title\x07c\x1b[31;5md\x9be"
	for _, s := range []Screen{{}, {Colour: true}, {Colour: true, Width: 80}, {Width: 40}} {
		var b strings.Builder
		w := On(&b, s)
		fmt.Fprintf(w, "%s %s\n", inkOf(w).in(red, "wrong"), hostile)
		left := b.String()
		for _, c := range colours {
			if !s.Colour && strings.Contains(left, c) {
				t.Errorf("%+v: colour in %q", s, left)
			}
			left = strings.ReplaceAll(left, c, "")
		}
		if slices.ContainsFunc([]byte(left), func(c byte) bool { return c != '\n' && (c < ' ' || c > '~') }) {
			t.Errorf("%+v: %q", s, left)
		}
		if s.Colour != strings.Contains(b.String(), red+"wrong"+normal) {
			t.Errorf("%+v: %q", s, b.String())
		}
	}
}

// Wider lines than a terminal has are broken, and nothing of them is lost.
func TestScreens(t *testing.T) {
	for _, width := range []int{40, 60, 80, 100, 120} {
		var narrow, whole strings.Builder
		draw := func(w io.Writer) {
			Show(w, documented(heir()))
			Status(w, answer.Node{Mode: config.Observe, Cards: fleet(),
				Now: []answer.Symptom{{Code: code.Stuck, Text: strings.Repeat("word ", 40)}}}.Status())
		}
		draw(On(&narrow, Screen{Width: width, Colour: true}))
		draw(On(&whole, Screen{Width: width, Colour: false}))
		for line := range strings.Lines(narrow.String()) {
			if n := seen(strings.TrimSuffix(line, "\n")); n > max(width,
				len("    largest block  not tested                    not tested")) {
				t.Errorf("%d columns: %d in %q", width, n, line)
			}
		}
		plain := narrow.String()
		for _, c := range colours {
			plain = strings.ReplaceAll(plain, c, "")
		}
		if plain != whole.String() {
			t.Errorf("%d columns: with colour\n%s\nwithout\n%s", width, plain, whole.String())
		}
	}
}

// fleet are cards of every kind.
func fleet() []answer.CardStatus {
	figure := func(gib float64) *uint64 {
		n := uint64(gib * (1 << 30))
		return &n
	}
	card := func(index int, used, odd *uint64) answer.CardStatus {
		c := answer.CardStatus{Card: answer.Card{Index: &index, UUID: fmt.Sprintf("GPU-%d", index)},
			Unknown: answer.Unknown{}}
		c.TotalBytes, c.UsedBytes, c.UnexplainedBytes, c.ReservedBytes = figure(80), used, odd, figure(0.6)
		return c
	}
	unknown := card(5, nil, nil)
	unknown.Unknown["used_bytes"] = "no rights"
	return []answer.CardStatus{
		card(0, figure(0), figure(0)), card(1, figure(40), figure(0)), card(2, figure(80), figure(80)),
		card(3, figure(0.05), figure(0.05)), card(4, figure(40), figure(20)), unknown,
	}
}

// What is there is drawn, however little; what is not known is not drawn as nothing.
func TestBars(t *testing.T) {
	for i, want := range []string{
		".......................................=", "####################...................=",
		"!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!",
		"!......................................=", "##########!!!!!!!!!!...................=",
		"????????????????????????????????????????",
	} {
		if got := bar(false, fleet()[i], 40); got != want {
			t.Errorf("card %d: %s, want %s", i, got, want)
		}
	}
	over := fleet()[0]
	much := uint64(1 << 50)
	over.UsedBytes, over.UnexplainedBytes = &much, &much
	if got := bar(false, over, 40); got != strings.Repeat("!", 40) {
		t.Errorf("more than there is: %s", got)
	}
	var b strings.Builder
	cards(&b, answer.Status{Cards: fleet()})
	for _, want := range []string{"  2   [!!!", "      20480 MiB are explained by no listed process\n",
		"memory unknown\n", "      memory: unknown: no rights\n", " 81920 of 81920 MiB\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("lacks %q:\n%s", want, b.String())
		}
	}
}

func TestSpan(t *testing.T) {
	for seconds, want := range map[float64]string{0: "0s", 59: "59s", 61: "1m01s", 3600: "1h00m", 86399: "23h59m",
		90000: "1d01h", 86400 * 365: "365d00h"} {
		got := ran(answer.Summary{RunHead: answer.RunHead{State: answer.Ended, Seconds: &seconds}})
		if got != want || len(got) > 7 {
			t.Errorf("%v: %s, want %s", seconds, got, want)
		}
	}
}

// On a terminal that is too narrow for both ends of a job beside each other each line has both of its figures.
func TestNarrowEnds(t *testing.T) {
	for width, want := range map[int]string{
		44: "    processes      1 -> 1\n", 80: "    processes      1                             1\n",
	} {
		var b strings.Builder
		Show(On(&b, Screen{Width: width}), documented(heir()))
		has(t, b.String(), []string{want})
	}
	r := heir()
	r.Ends = nil
	var b strings.Builder
	Show(On(&b, Screen{Width: 44}), documented(r))
	has(t, b.String(), []string{"20480 MiB -> not yet\n", " -> ?\n"})
}
