package leftover

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/record"
)

const mib = 1 << 20

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// at is a listing of an hour after the start.
func at(files []Item, segments ...Item) Listing {
	return Listing{Wall: start.Add(time.Hour), Device: 7, Files: files, Segments: segments}
}

// What was there before, is in use, is older or is not the user's own work is never a job's leftover, and what cannot be
// compared is unknown.
func TestSince(t *testing.T) {
	marked := Listing{Wall: start, Device: 7, Files: []Item{{ID: 9, Name: "genome"}, {ID: 3}},
		Segments: []Item{{ID: 5}}}.Mark()
	file := func(edit func(*Item)) Item {
		f := Item{ID: 20, Name: "new", Bytes: 100 * mib, Made: start.Add(time.Minute)}
		edit(&f)
		return f
	}
	segment := func(edit func(*Item)) Item {
		s := Item{ID: 6, Bytes: 100 * mib, Made: start.Add(time.Minute)}
		edit(&s)
		return s
	}
	for name, tt := range map[string]struct {
		mark    *record.SharedMark
		now     Listing
		left    int
		unknown bool
	}{
		"a new file": {marked, at([]Item{file(func(*Item) {})}), 1, false},
		"a file that was there before, and has grown": {marked, at([]Item{file(func(f *Item) { f.ID = 9 })}), 0, false},
		"a file of before that was moved here":        {marked, at([]Item{file(func(f *Item) { f.Made = start.Add(-time.Second) })}), 0, false},
		"a file of the kernel's last tick":            {marked, at([]Item{file(func(f *Item) { f.Made = start.Add(-4 * time.Millisecond) })}), 1, false},
		"a file of after the listing began":           {marked, at([]Item{file(func(f *Item) { f.Made = start.Add(2 * time.Hour) })}), 0, false},
		"a new file without a birth time":             {marked, at([]Item{file(func(f *Item) { f.Made = time.Time{} })}), 1, false},
		"an old file without a birth time":            {marked, at([]Item{file(func(f *Item) { f.Made, f.ID = time.Time{}, 3 })}), 0, false},
		"a new segment":                               {marked, at(nil, segment(func(*Item) {})), 1, false},
		"a segment of before":                         {marked, at(nil, segment(func(s *Item) { s.ID = 5 })), 0, false},
		"a segment that a process has mapped":         {marked, at(nil, segment(func(s *Item) { s.InUse = true })), 0, false},
		"a segment changed last before the start":     {marked, at(nil, segment(func(s *Item) { s.Made = start.Add(-2 * time.Second) })), 0, false},
		"no list of the start":                        {nil, at([]Item{file(func(*Item) {})}), 0, true},
		"a list of the start that is not whole":       {&record.SharedMark{Device: 7, Unknown: "cut"}, at([]Item{file(func(*Item) {})}), 0, true},
		"a list of now that is not whole":             {marked, Listing{Device: 7, Unknown: "cut"}, 0, true},
		"another file system by now":                  {marked, Listing{Device: 8, Wall: start, Files: []Item{file(func(*Item) {})}}, 0, true},
		"more at the start than a record keeps": {Listing{Device: 7, Files: make([]Item, MaxMarked+1)}.Mark(),
			at([]Item{file(func(*Item) {})}), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			left, known := tt.now.Since(tt.mark)
			if len(left.Files)+len(left.Segments) != tt.left || known == tt.unknown || left.Matter() != (tt.left > 0) {
				t.Errorf("%+v, known %v", left, known)
			}
		})
	}
}

// POSIX message queues and huge pages go by the same rule, each directory by its own device, and count with the files.
func TestOthers(t *testing.T) {
	listing := func(queues, pages Listing) Listing {
		l := at(nil)
		l.Others = []Listing{queues, pages}
		return l
	}
	of := func(device uint64, items ...Item) Listing { return Listing{Device: device, Files: items} }
	marked := listing(of(8, Item{ID: 1}), of(9))
	marked.Wall = start
	mark := marked.Mark()
	many := make([]Item, 100)
	for i := range many {
		many[i] = Item{ID: uint64(10 + i), Name: "queue"}
	}
	for name, tt := range map[string]struct {
		now  Listing
		mark *record.SharedMark
		left int
	}{
		"new queues":                    {listing(of(8, append(many, Item{ID: 1})...), of(9)), mark, 100},
		"huge pages":                    {listing(of(8), of(9, Item{ID: 5, Bytes: 64 * mib})), mark, 1},
		"made in the job":               {listing(of(8), of(9, Item{ID: 5, Bytes: 64 * mib, Made: start.Add(time.Minute)})), mark, 1},
		"made before it":                {listing(of(8), of(9, Item{ID: 5, Bytes: 64 * mib, Made: start.Add(-time.Minute)})), mark, 0},
		"queues of before":              {listing(of(8, Item{ID: 1, Bytes: 64 * mib}), of(9)), mark, 0},
		"mounted meanwhile":             {listing(of(7, many...), of(9)), mark, 0},
		"not known now":                 {listing(Listing{Device: 8, Files: many, Unknown: "cut"}, of(9)), mark, 0},
		"a start of an earlier version": {listing(of(8, many...), of(9)), &record.SharedMark{Wall: start, Device: 7}, 0},
	} {
		left, known := tt.now.Since(tt.mark)
		if !known || len(left.all()) != tt.left || left.Matter() != (tt.left > 0) {
			t.Errorf("%s: %+v, %v", name, left, known)
		}
	}
	left, _ := listing(of(8, Item{ID: 2, Name: "q"}, Item{ID: 3}), of(9, Item{ID: 4, Name: "p"})).Since(mark)
	left = left.Only(nil, []uint64{2}, []uint64{4, 9})
	const want = "this job left 1 POSIX message queue q in /dev/mqueue and 1 huge page file p in /dev/hugepages" +
		"; remove: find /dev/mqueue -maxdepth 1 -type f -user 1000 -not -newermt @1001 '(' -inum 2 ')' -delete" +
		"; find /dev/hugepages -maxdepth 1 -type f -user 1000 -not -newermt @1001 '(' -inum 4 ')' -delete"
	if got := left.Text(nil, "") + left.Command(1000, "/dev/shm", time.Unix(1000, 5)); got != want || len(Inodes(got)) > 0 {
		t.Errorf("%q, want %q", got, want)
	}
	left.Files = many[:20]
	if got := left.Command(1000, "/dev/shm", time.Unix(1000, 5)); !strings.HasPrefix(got, " (the command removes the 5 largest)") || strings.Contains(got, "mqueue") {
		t.Errorf("%q", got)
	}
	if left = left.Only(); len(left.all()) > 0 {
		t.Errorf("%+v", left)
	}
}

func TestMatter(t *testing.T) {
	for _, tt := range []struct {
		files   int
		bytes   uint64
		segment uint64
		matters bool
	}{
		{1, 64 * mib, 0, true}, {1, 64*mib - 1, 0, false}, {1, 32 * mib, 32 * mib, true}, {99, 0, 0, false}, {99, 0, 1, true},
	} {
		left := Remains{Files: make([]Item, tt.files)}
		left.Files[0].Bytes = tt.bytes
		if tt.segment > 0 {
			left.Segments = []Item{{Bytes: tt.segment}}
		}
		if left.Matter() != tt.matters {
			t.Errorf("%+v: %v", tt, left.Matter())
		}
	}
	left := Remains{Files: []Item{{ID: 4}, {ID: 8}, {ID: 2}}}.Only([]uint64{8, 4, 1})
	if !slices.Equal(left.Inodes(), []uint64{4, 8}) {
		t.Errorf("%v", left.Inodes())
	}
}

func TestSubject(t *testing.T) {
	for _, tt := range []struct {
		jobs   []string
		unseen string
		want   string
	}{
		{[]string{"12"}, "", "this job left "},
		{[]string{"12", "13"}, "", "job 12 or 13 left "},
		{[]string{"12"}, "a login", "job 12 or something else of its user left "},
		{[]string{"12", "13", "14"}, "a login", "job 12 or 13 or 14 or something else of its user left "},
	} {
		if got := (Remains{Segments: []Item{{ID: 1}}}).Text(tt.jobs, tt.unseen); !strings.HasPrefix(got, tt.want+"1 ") {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// No name forges a line, and the command means to a shell what it says.
func TestText(t *testing.T) {
	files := func(names ...string) (all []Item) {
		for i, name := range names {
			all = append(all, Item{Name: name, ID: uint64(41 + i)})
		}
		return all
	}
	const find = "; remove: find /dev/shm -maxdepth 1 -type f -user 1000 -not -newermt @1001 '(' "
	for _, tt := range []struct {
		left Remains
		want string
	}{
		{Remains{Files: files("vllm_offload_1.mmap")}, "1 file vllm_offload_1.mmap in /dev/shm" + find + "-inum 41 ')' -delete"},
		{Remains{Files: files("torch_1_a", "torch_1_b")}, "2 files torch_1_* in /dev/shm" + find + "-inum 41 -o -inum 42 ')' -delete"},
		{Remains{Files: files("a", "b")}, "2 files in /dev/shm" + find + "-inum 41 -o -inum 42 ')' -delete"},
		{Remains{Files: files("a\nbookend: all is well; remove: rm -rf /")}, "1 file a* in /dev/shm" + find + "-inum 41 ')' -delete"},
		{Remains{Files: files("\x1b[2J")}, "1 file in /dev/shm" + find + "-inum 41 ')' -delete"},
		{Remains{Segments: []Item{{ID: 5}}}, "1 System V segment; remove: ipcrm -m 5"},
		{Remains{Files: files("a"), Segments: []Item{{ID: 5}, {ID: 6}}}, "1 file a in /dev/shm and 2 System V segments" +
			find + "-inum 41 ')' -delete; ipcrm -m 5 -m 6"},
	} {
		got := tt.left.Text(nil, "") + tt.left.Command(1000, "/dev/shm", time.Unix(1000, 5))
		if got != "this job left "+tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
		_, command, _ := strings.Cut(got, removal)
		if out, err := exec.Command("sh", "-n", "-c", command).CombinedOutput(); err != nil {
			t.Errorf("%q: %v: %s", command, err, out)
		}
	}
	many := Remains{Files: files(strings.Split(strings.Repeat("name ", 50), " ")...)}
	for i := range 50 {
		many.Files[i].ID = 1<<63 + uint64(i)
		many.Segments = append(many.Segments, Item{ID: 1<<31 - 1})
	}
	note, text, _ := strings.Cut(many.Command(1<<32-2, "/dev/shm", time.Unix(1<<33, 0)), removal)
	if len(text) > 200 || !strings.HasSuffix(text, "-m 2147483647") ||
		note != fmt.Sprintf(" (the command removes the %d largest)", strings.Count(text, "-inum")+2) {
		t.Errorf("%d bytes,%s: %s", len(text), note, text)
	}
	none := many.Without(many.Inodes())
	if none.Segments = nil; none.Command(1, "/dev/shm", time.Time{}) != "" || len(none.Files) > 0 {
		t.Errorf("%+v", none)
	}
}

const columns = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n"

func TestParseSegments(t *testing.T) {
	line := func(id, uid, cuid int) string {
		return fmt.Sprintf("-559038737 %10d  1600 %21d  4711  4712      0  %d 100 %d 100 0 0 1796040000 8192 0\n", id, 1<<30, uid, cuid)
	}
	got, err := ParseSegments(columns+line(5, 1000, 1001)+line(6, 1001, 1000)+line(7, 1000, 1000), 1000)
	want := Item{ID: 5, Bytes: 8192, Made: time.Unix(1796040000, 0), InUse: true}
	if err != nil || len(got) != 2 || got[0] != want || got[1].ID != 7 || got[1].InUse {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"a\n1\n", columns + "1 2 3\n", columns + strings.Replace(line(5, 1000, 0), "8192", "-1", 1)} {
		if got, err := ParseSegments(bad, 1000); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

func FuzzParseSegments(f *testing.F) {
	f.Add(columns+"0 5 600 4096 1 1 0 1000 1000 1000 1000 0 0 1 4096 0\n", uint32(1000))
	f.Fuzz(func(t *testing.T, text string, uid uint32) {
		all, err := ParseSegments(text, uid)
		for _, s := range all {
			if s.Bytes >= 1<<63 || err != nil || !strings.Contains(text, fmt.Sprint(uid)) {
				t.Errorf("%+v, %v", s, err)
			}
		}
	})
}
