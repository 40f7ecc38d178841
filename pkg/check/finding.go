package check

import (
	"cmp"
	"fmt"
	"time"
)

// Verdict is the result of one check.
type Verdict string

// The verdicts, from best to worst.
const (
	Pass    Verdict = "PASS"    // no problem found
	Skip    Verdict = "SKIP"    // not applicable to this node, or not supported
	Warn    Verdict = "WARN"    // reported, but the job goes on
	Unknown Verdict = "UNKNOWN" // the check itself did not work
	Wait    Verdict = "WAIT"    // not ready yet: checked again until the deadline, then a Fail
	Fail    Verdict = "FAIL"    // the driver is not started on this node
)

// Class says what a finding is evidence of.
type Class string

// The classes of findings.
const (
	// ClassNode marks a fault of this node's hardware or kernel. It counts against the node whatever
	// other nodes report.
	ClassNode Class = "node"
	// ClassEnvironment marks a fault that the job's settings or its image may cause on every node. It
	// counts against this node only if another node of the job has passed the same check.
	ClassEnvironment Class = "environment"
	// ClassUser marks a fault in the job's own request. No other node would pass the check either.
	ClassUser Class = "user"
)

// Device identifies the GPU, network card or disk that a finding is about.
type Device struct {
	Index int    `json:"index"`          // among the node's devices of its kind; -1 if it has none
	Name  string `json:"name,omitempty"` // set for network cards and disks
	UUID  string `json:"uuid,omitempty"`
	Bus   string `json:"bus,omitempty"` // PCI address: 0000:3b:00.0
}

// String returns the device's usual name: "GPU 3 (0000:3b:00.0)", "mlx5_0".
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

// Finding is the result of one check for one device or for the whole node.
type Finding struct {
	ID       string  `json:"id"` // gpu.remap; never reused for another meaning
	Device   *Device `json:"device,omitempty"`
	Verdict  Verdict `json:"verdict"`
	Observed string  `json:"observed"`           // the observed state
	Expected string  `json:"expected,omitempty"` // the state that would pass
	Source   string  `json:"source,omitempty"`   // system call or path that was read
	Hint     string  `json:"hint,omitempty"`     // how to fix it; empty if nothing is wrong
	Class    Class   `json:"class,omitempty"`    // empty if nothing is wrong
	// MaxWait limits how long a Wait is retried; 0: until the deadline.
	MaxWait time.Duration `json:"patience_ns,omitempty"`
	// Strict says that strict mode turns this Warn into a Fail.
	Strict bool `json:"strict,omitempty"`
	// ChangedBy is the setting that has changed the verdict, such as gpu.busy=warn.
	ChangedBy string `json:"by,omitempty"`
	// Lines are the last output lines of a command.
	Lines []string `json:"lines,omitempty"`
	// NodeIndices are the sorted indices of the nodes that the finding is about, if several nodes were
	// checked. Nodes are the names of these nodes.
	NodeIndices []int    `json:"-"`
	Nodes       []string `json:"nodes,omitempty"`
}

// IsQuiet reports whether the finding needs no action: the check has passed or was skipped.
func (f Finding) IsQuiet() bool { return f.Verdict == Pass || f.Verdict == Skip }

// FindingBuilder collects the findings of one check.
type FindingBuilder struct {
	// Template contains the values that all findings of the check have in common.
	Template Finding
	Findings []Finding

	attributes []Attribute // attributes that the check has read
}

// AddFinding adds a finding. by is the class of the fault, expected is what would pass, and hint is
// how to fix it. The caller may change the returned Finding until the next one is added.
func (s *FindingBuilder) AddFinding(v Verdict, by Class, observed, expected, hint string) *Finding {
	f := s.Template
	f.Verdict, f.Class, f.Observed, f.Expected, f.Hint = v, by, observed, expected, hint
	s.Findings = append(s.Findings, f)
	return &s.Findings[len(s.Findings)-1]
}

// AddPass adds a finding that the check has passed.
func (s *FindingBuilder) AddPass(observed string) { s.AddFinding(Pass, "", observed, "", "") }

// AddSkip adds a finding that the check does not apply, with the reason.
func (s *FindingBuilder) AddSkip(observed string) { s.AddFinding(Skip, "", observed, "", "") }

// AddWarning adds a finding about a problem that does not stop the job.
func (s *FindingBuilder) AddWarning(by Class, observed, expected, hint string) *Finding {
	return s.AddFinding(Warn, by, observed, expected, hint)
}

// AddFailure adds a finding about a problem with which no job should start.
func (s *FindingBuilder) AddFailure(by Class, observed, expected, hint string) *Finding {
	return s.AddFinding(Fail, by, observed, expected, hint)
}

// addUnreadable adds a finding that the check could not read its data.
func (s *FindingBuilder) addUnreadable(err error) {
	s.AddFinding(Unknown, ClassEnvironment, fmt.Sprintf("cannot be read: %v", err), "",
		"check that the path exists and that the job's user can read it, also inside the container")
}
