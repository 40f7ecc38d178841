package check

import "time"

// ReportVersion is the version of the form that a Report has as JSON.
const ReportVersion = 1

// Report is what all checks of a node have said.
type Report struct {
	Version  int           `json:"version"`
	Host     string        `json:"host"`
	Rank     int           `json:"rank"` // -1 where there is no run
	At       time.Time     `json:"at"`
	Took     time.Duration `json:"took_ns"`
	Verdict  Verdict       `json:"verdict"`
	Findings []Finding     `json:"findings"`
	// Traits are what the nodes of a job are compared by.
	Traits []Trait `json:"traits,omitempty"`
}

// Trait is the node's value of that id; empty where it tells none.
func (r Report) Trait(id string) string {
	value, _ := r.trait(id)
	return value
}

func (r Report) trait(id string) (value string, told bool) {
	for _, t := range r.Traits {
		if t.ID == id {
			return t.Value, true
		}
	}
	return "", false
}

// Trait is something that is the same on all nodes of a job, or should be.
type Trait struct {
	ID    string `json:"id"` // x.driver: also the check's that compares it
	Value string `json:"value"`
}
