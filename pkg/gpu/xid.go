package gpu

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

const xidCatalogue = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"

// Effect is the effect of an event on the running job.
type Effect string

// The effects.
const (
	EffectFatal Effect = "fatal" // the job ends, because it cannot use the GPU any more
	// depends on the GPU's recovery action or the state of its links
	EffectAsk Effect = "ask"
	// probably an error of the user's program: its outcome decides, and the Xid is reported with it
	EffectApp    Effect = "app"
	EffectWarn   Effect = "warn"   // reported, and the job continues
	EffectIgnore Effect = "ignore" // not reported
)

// NextJobFitness is whether the GPU may be used by the next job.
type NextJobFitness string

// The values of Next.
const (
	NextFit   NextJobFitness = "fit"   // the GPU may be used by another job
	NextUnfit NextJobFitness = "unfit" // not until an administrator acts
)

// EventVerdict is the classification of an Xid, or of another event.
type EventVerdict struct {
	Effect  Effect         `json:"effect"`
	Next    NextJobFitness `json:"next,omitempty"`
	Action  string         `json:"action,omitempty"`  // the action that an operator must take
	Meaning string         `json:"meaning,omitempty"` // a description of the event
}

//go:embed xid.tsv
var xidTableData string

// xidTable maps Xids to their classification, as xid.tsv has it.
var xidTable = sync.OnceValue(func() map[int]EventVerdict {
	table := make(map[int]EventVerdict)
	for line := range strings.Lines(xidTableData) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		xid, verdict, err := parseXidLine(line)
		if err != nil {
			panic("internal error: " + err.Error()) // a test makes sure that it can be parsed
		}
		table[xid] = verdict
	}
	return table
})

// parseXidLine parses one line of xid.tsv.
func parseXidLine(line string) (xid int, verdict EventVerdict, err error) {
	fields := strings.Split(line, "\t")
	if len(fields) != 5 {
		return 0, verdict, fmt.Errorf("cannot use %q: it has %d fields, expected 5", line, len(fields))
	}
	xid, err = strconv.Atoi(fields[0])
	return xid, EventVerdict{Effect(fields[1]), NextJobFitness(fields[2]), fields[3], fields[4]}, err
}

// maxXid is the maximum Xid; the known ones are below 200, and 999 stands for an error that the
// driver cannot name.
const maxXid = 65535

// lookUpXid returns the classification of an Xid. An Xid that is not in the table is a warning.
func lookUpXid(xid int) EventVerdict {
	if verdict, known := xidTable()[xid]; known {
		return verdict
	}
	return EventVerdict{EffectWarn, NextFit, "see " + xidCatalogue, "not in the table of Xids"}
}
