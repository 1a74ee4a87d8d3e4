package answer

// Doctor is what "bookend doctor" says.
type Doctor struct {
	Head
	Results []Checked      `json:"results"`
	Counts  map[string]int `json:"counts"` // of results by level
}

// Checked is one thing that was looked at.
type Checked struct {
	Check string `json:"check"`         // its name, as in docs/doctor.md
	Level string `json:"level"`         // ok, warning, wrong, unknown
	Path  string `json:"path"`          // or what it is about, where that is no file
	Seen  string `json:"seen"`          // what there is
	Why   string `json:"why,omitempty"` // why it matters; where it is not well
	Fix   string `json:"fix,omitempty"` // a command, or what to change
}

// NewDoctor is the document of results, whose texts are printable ASCII.
func NewDoctor(results []Checked, counts map[string]int) Doctor {
	return Doctor{head(KindDoctor), list(results), counts}
}
