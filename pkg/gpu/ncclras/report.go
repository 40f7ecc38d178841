package ncclras

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
)

// Report is the answer of the RAS subsystem, in the form of NCCL 2.28.7 and later.
type Report struct {
	NCCLVersion   string         `json:"nccl_version"`
	RCCLVersion   string         `json:"rccl_version"`
	Communicators []Communicator `json:"communicators"`
}

// Version returns the name and the version of the library.
func (r Report) Version() string {
	if r.RCCLVersion != "" {
		return "RCCL " + r.RCCLVersion
	}
	return "NCCL " + cmp.Or(r.NCCLVersion, "of an unknown version")
}

// Communicator is a communicator with the ranks that have answered, and those that have not.
type Communicator struct {
	Hash    string        `json:"hash"`
	Size    int           `json:"size"`
	Ranks   []Rank        `json:"ranks"`
	Missing []MissingRank `json:"missing_ranks"`
}

// Member is a rank of a communicator, and its process.
type Member struct {
	Rank int    `json:"rank"` // in the communicator
	Host string `json:"host"` // an IP address, or "unknown"
	PID  int    `json:"pid"`  // in the PID namespace of the process; -1 if unknown
}

// Rank is the state of a rank that has answered.
type Rank struct {
	Member
	Status struct {
		InitState  int  `json:"init_state"`
		AsyncError int  `json:"async_error"`
		Finalize   bool `json:"finalize_called"`
		Destroy    bool `json:"destroy_flag"`
		Abort      bool `json:"abort_flag"`
	} `json:"status"`
	// Counts are the collectives that the rank has started, by their names.
	Counts map[string]uint64 `json:"collective_counts"`
}

// MissingRank is a rank about which nothing is known.
type MissingRank struct {
	Member
	Status struct {
		Unresponsive bool `json:"unresponsive"`
		Dead         bool `json:"considered_dead"`
	} `json:"status"`
}

// missingComma matches the place before the status of a missing rank where NCCL 2.28.7 to 2.28.9 omit
// a comma.
var missingComma = regexp.MustCompile(`("nvml_dev": *-?[0-9]+)(\s*"status")`)

// ParseReport parses an answer.
func ParseReport(data []byte) (r Report, err error) {
	if err = json.Unmarshal(data, &r); err != nil {
		r = Report{}
		err = json.Unmarshal(missingComma.ReplaceAll(data, []byte("$1,$2")), &r)
	}
	if err != nil {
		return Report{}, fmt.Errorf("cannot read the answer of NCCL: %w", err)
	}
	return r, nil
}
