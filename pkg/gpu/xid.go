package gpu

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
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

// XidTable maps Xids to their classification. The zero table is empty. A table is immutable.
type XidTable struct{ rows map[int]EventVerdict }

//go:embed xid.tsv
var xidTableData []byte

// BuiltinXidTable returns the table that is part of bringupd.
var BuiltinXidTable = sync.OnceValue(func() XidTable {
	table, err := XidTable{}.WithOverrides(xidTableData)
	if err != nil {
		panic("internal error: " + err.Error()) // a test makes sure that it can be parsed
	}
	return table
})

// lookUpXid returns the classification of an Xid. An Xid that is not in the table is a warning.
func (t XidTable) lookUpXid(xid int) EventVerdict {
	verdict, known := t.rows[xid]
	if !known {
		return EventVerdict{
			Effect:  EffectWarn,
			Next:    NextFit,
			Action:  "see " + xidCatalogue,
			Meaning: "not in the table of Xids",
		}
	}
	return verdict
}

// WithOverrides returns a copy of the table, with the lines of data added or replaced. The format
// is that of xid.tsv.
func (t XidTable) WithOverrides(data []byte) (XidTable, error) {
	rows := maps.Clone(t.rows)
	if rows == nil {
		rows = map[int]EventVerdict{}
	}
	first := map[int]int{} // the line number of each Xid in data
	number := 0
	for line := range bytes.Lines(data) {
		number++
		text := strings.TrimRight(string(line), "\r\n\t ")
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		xid, verdict, err := parseXidLine(text, rows)
		if err == nil && first[xid] != 0 {
			err = fmt.Errorf("line %d already has Xid %d: list it once", first[xid], xid)
		}
		if err != nil {
			return XidTable{}, fmt.Errorf("cannot use line %d of the Xid policy: %w", number, err)
		}
		rows[xid], first[xid] = verdict, number
	}
	return XidTable{rows}, nil
}

// maximum Xid; the known ones are below 200, and 999 stands for an error that the driver cannot
// name
const maxXid = 65535

var errXidFormat = errors.New("give a number, a verdict, fit or unfit, and optionally an action " +
	"and a meaning, separated by tabs")

// parseXidLine parses one line of a table. Action and meaning are optional; if they are missing,
// those in was are kept.
func parseXidLine(text string, was map[int]EventVerdict) (xid int, verdict EventVerdict, err error) {
	if !utf8.ValidString(text) {
		return 0, verdict, errors.New("it is not valid UTF-8")
	}
	fields := strings.Split(text, "\t")
	if len(fields) < 3 || len(fields) > 5 {
		return 0, verdict, fmt.Errorf("%.40q has %d fields: %w", text, len(fields), errXidFormat)
	}
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
		if strings.ContainsFunc(fields[i], func(r rune) bool { return !unicode.IsPrint(r) }) {
			return 0, verdict, fmt.Errorf("%.40q has non-printable characters: give plain text", fields[i])
		}
	}
	// The first three fields are required: number, effect and fitness.
	xid, err = strconv.Atoi(fields[0])
	if err != nil || xid < 1 || xid > maxXid || strconv.Itoa(xid) != fields[0] {
		return 0, verdict, fmt.Errorf("%.40q is not an Xid: give an integer from 1 to %d", fields[0], maxXid)
	}
	verdict = was[xid]
	switch verdict.Effect = Effect(fields[1]); verdict.Effect {
	case EffectFatal, EffectAsk, EffectApp, EffectWarn, EffectIgnore:
	default:
		return 0, verdict, fmt.Errorf("%.40q is not a verdict: give %s, %s, %s, %s or %s",
			fields[1], EffectFatal, EffectAsk, EffectApp, EffectWarn, EffectIgnore)
	}
	if verdict.Next = NextJobFitness(fields[2]); verdict.Next != NextFit && verdict.Next != NextUnfit {
		return 0, verdict, fmt.Errorf("%.40q is neither fit nor unfit: %w", fields[2], errXidFormat)
	}
	// The action and the meaning are optional.
	if len(fields) > 3 && fields[3] != "" {
		verdict.Action = fields[3]
	}
	if len(fields) > 4 && fields[4] != "" {
		verdict.Meaning = fields[4]
	}
	return xid, verdict, nil
}
