package check

import (
	"cmp"
	"fmt"
	"time"
)

// Verdict is what one check says.
type Verdict string

// The verdicts, from the best to the worst.
const (
	Pass    Verdict = "PASS"
	Skip    Verdict = "SKIP"    // not applicable here, or not supported
	Warn    Verdict = "WARN"    // told of, and the job goes on
	Unknown Verdict = "UNKNOWN" // the check itself did not work
	Wait    Verdict = "WAIT"    // not yet: looked at again until the deadline, a Fail then
	Fail    Verdict = "FAIL"    // no driver starts on this node
)

// Class is what a finding is evidence of.
type Class string

// The classes.
const (
	// Node is evidence of a fault of this node's hardware or kernel, which counts against it
	// whatever other nodes report.
	Node Class = "node"
	// Environment is a fault that the job's settings or its image may cause on every node. It counts
	// against this node only if another node of the job has passed the same check.
	Environment Class = "environment"
	// User is a fault of what the job asks for: no other node passes either.
	User Class = "user"
)

// Device is the GPU, network card or disk that a finding is about.
type Device struct {
	Index int    `json:"index"`          // among its kind on the node; -1 where it has none
	Name  string `json:"name,omitempty"` // of a network card or a disk
	UUID  string `json:"uuid,omitempty"`
	Bus   string `json:"bus,omitempty"` // PCI address: 0000:3b:00.0
}

// String names the device as people do: "GPU 3 (0000:3b:00.0)", "mlx5_0".
func (d Device) String() string {
	switch {
	case d.Name != "":
		return d.Name
	case d.Index < 0 && d.Bus != "":
		return "GPU " + d.Bus
	case d.Index < 0:
		return cmp.Or(d.UUID, "GPU ?")
	case d.Bus != "":
		return fmt.Sprintf("GPU %d (%s)", d.Index, d.Bus)
	default:
		return fmt.Sprintf("GPU %d", d.Index)
	}
}

// Finding is what one check says of one thing.
type Finding struct {
	ID       string  `json:"id"` // gpu.remap: never another meaning
	Device   *Device `json:"device,omitempty"`
	Verdict  Verdict `json:"verdict"`
	Observed string  `json:"observed"`           // what was seen
	Expected string  `json:"expected,omitempty"` // what would pass
	Source   string  `json:"source,omitempty"`   // the call or the path that told
	Hint     string  `json:"hint,omitempty"`     // what to do about it; empty where nothing is wrong
	Class    Class   `json:"class,omitempty"`    // empty where nothing is wrong
	// Patience is for how long a Wait is worth it; 0: until the deadline.
	Patience time.Duration `json:"patience_ns,omitempty"`
	// Strict says that strict makes a Fail of this Warn.
	Strict bool `json:"strict,omitempty"`
	// By is the setting that has made this verdict of another one: gpu.busy=warn.
	By string `json:"by,omitempty"`
	// Lines are the last ones that a command has said.
	Lines []string `json:"lines,omitempty"`
	// Ranks are those of the nodes that it is about, sorted, where several were looked at; Nodes are their names.
	Ranks []int    `json:"-"`
	Nodes []string `json:"nodes,omitempty"`
}

// Quiet tells whether there is nothing to do about the finding.
func (f Finding) Quiet() bool { return f.Verdict == Pass || f.Verdict == Skip }
