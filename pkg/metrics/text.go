package metrics

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Source tells how a daemon is at the moment. It may be asked from any
// goroutine, and must not wait for a file system or a network.
type Source interface {
	Snapshot() Snapshot
}

// Snapshot is how a daemon is at one moment. Of what is listed, each entry is
// named once.
type Snapshot struct {
	Run     string
	Rank    int
	Role    string
	Version string
	Up      bool
	Phases  []Phase
	Nodes   []Nodes // nil on all but the head
	Checks  []Check
	Share   []Calls
}

// Phase is a part of the sequence that has been entered.
type Phase struct {
	Name string
	Took time.Duration // so far, where it goes on
}

// Nodes are those that have reached a state.
type Nodes struct {
	State string
	Count int
}

// Check is what one check has said, of as many things.
type Check struct {
	ID, Verdict string
	Count       int
}

// Calls are those of one kind into the share.
type Calls struct {
	Op    string
	Count int64
	Busy  time.Duration
}

// Text is the snapshot as Prometheus reads it. It bears no times: a collector
// of text files refuses them.
func (s Snapshot) Text() []byte {
	e := exposition{common: pairs("run", s.Run, "rank", strconv.Itoa(s.Rank))}
	e.family("bringupd_info", "gauge", "What this daemon is; always 1.")
	e.sample(1, "version", s.Version, "role", s.Role)
	e.family("bringupd_up", "gauge", "1 while this node is up: on the head, while the gate is open.")
	e.sample(number(s.Up))
	e.family("bringupd_phase_seconds", "gauge", "How long a phase of this node took, or takes so far.")
	for _, phase := range s.Phases {
		e.sample(phase.Took.Seconds(), "phase", phase.Name)
	}
	e.family("bringupd_nodes", "gauge", "Nodes of the job that have reached a state, as the head sees them.")
	for _, nodes := range s.Nodes {
		e.sample(float64(nodes.Count), "state", nodes.State)
	}
	e.family("bringupd_check", "gauge", "Findings of a check of this node, by what they say.")
	for _, check := range s.Checks {
		e.sample(float64(check.Count), "id", check.ID, "verdict", check.Verdict)
	}
	e.family("bringupd_share_operations_total", "counter", "Calls of this daemon into the log directory's share.")
	for _, calls := range s.Share {
		e.sample(float64(calls.Count), "op", calls.Op)
	}
	e.family("bringupd_share_operations_seconds_total", "counter", "How long those took that have come back.")
	for _, calls := range s.Share {
		e.sample(calls.Busy.Seconds(), "op", calls.Op)
	}
	return e.text.Bytes()
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// exposition is a text in Prometheus' format. A family without a sample is left
// out.
type exposition struct {
	text    bytes.Buffer
	common  string // labels of every sample
	name    string
	heading string // of the family, until it has a sample
}

func (e *exposition) family(name, kind, help string) {
	e.name = name
	e.heading = fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (e *exposition) sample(value float64, labels ...string) {
	e.text.WriteString(e.heading)
	e.heading = ""
	all := e.common
	if len(labels) > 0 {
		all += "," + pairs(labels...)
	}
	fmt.Fprintf(&e.text, "%s{%s} %s\n", e.name, all, strconv.FormatFloat(value, 'g', -1, 64))
}

// pairs are labels, of names and values in turns.
func pairs(labels ...string) string {
	var parts []string
	for i := 0; i+1 < len(labels); i += 2 {
		parts = append(parts, labels[i]+`="`+escape.Replace(strings.ToValidUTF8(labels[i+1], "\uFFFD"))+`"`)
	}
	return strings.Join(parts, ",")
}

var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
