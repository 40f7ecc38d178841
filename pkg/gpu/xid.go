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

// xidCatalogue is where NVIDIA says what each Xid is.
const xidCatalogue = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"

// Effect is what something that befell a GPU is for the job.
type Effect string

// The effects.
const (
	EffectFatal  Effect = "fatal"  // the job ends: the GPU is of no use to it any more
	EffectAsk    Effect = "ask"    // the severity, the GPU's recovery action or the state of its links decides
	EffectApp    Effect = "app"    // the driver's end decides, and is told with this
	EffectWarn   Effect = "warn"   // told, and the job goes on
	EffectIgnore Effect = "ignore" // not told
)

// Next is what something that befell a GPU is for the job after this one.
type Next string

// What comes next.
const (
	NextFit   Next = "fit"   // the GPU may be given to another job
	NextUnfit Next = "unfit" // not before somebody acts
)

// XidVerdict is what is thought of an Xid.
type XidVerdict struct {
	Effect  Effect `json:"effect"`
	Next    Next   `json:"next,omitempty"`
	Action  string `json:"action,omitempty"`  // what an operator does about it
	Meaning string `json:"meaning,omitempty"` // what it is
}

// XidTable is what is thought of each Xid. The zero table knows none. It never changes.
type XidTable struct{ rows map[int]XidVerdict }

// The severities that the driver names some Xids with.
const (
	severityFatal    = "Fatal"
	severityNonfatal = "Nonfatal"
)

//go:embed xid.tsv
var builtinXids []byte

// Xids is the table that bringupd comes with.
var Xids = sync.OnceValue(func() XidTable {
	table, err := XidTable{}.Overlay(builtinXids)
	if err != nil {
		panic("internal error: " + err.Error()) // a test reads it
	}
	return table
})

// verdict returns what is thought of an Xid that the driver has named with that severity, if any. A number that nobody
// knows is told of and ends no job.
func (t XidTable) verdict(xid int, severity string) XidVerdict {
	verdict, known := t.rows[xid]
	if !known {
		return XidVerdict{
			Effect:  EffectWarn,
			Next:    NextFit,
			Action:  "look it up in " + xidCatalogue,
			Meaning: fmt.Sprintf("Xid %d is not in the table", xid),
		}
	}
	if verdict.Effect == EffectAsk {
		// The kernel's log has "Nonfatal", the catalogue "Non-fatal".
		switch word := strings.ReplaceAll(severity, "-", ""); {
		case strings.EqualFold(word, severityFatal):
			verdict.Effect, verdict.Next = EffectFatal, NextUnfit
		case strings.EqualFold(word, severityNonfatal):
			verdict.Effect = EffectWarn
		}
	}
	return verdict
}

// Overlay returns the table with the lines of a file in the form of xid.tsv in it.
func (t XidTable) Overlay(data []byte) (XidTable, error) {
	rows := maps.Clone(t.rows)
	if rows == nil {
		rows = map[int]XidVerdict{}
	}
	first := map[int]int{} // the line that has the number
	number := 0
	for line := range bytes.Lines(data) {
		number++
		text := strings.TrimRight(string(line), "\r\n\t ")
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		xid, verdict, err := parseXid(text, rows)
		if err == nil && first[xid] != 0 {
			err = fmt.Errorf("line %d has Xid %d already: give it once", first[xid], xid)
		}
		if err != nil {
			return XidTable{}, fmt.Errorf("cannot take line %d of the Xid policy: %w", number, err)
		}
		rows[xid], first[xid] = verdict, number
	}
	return XidTable{rows}, nil
}

const mostXid = 65535 // today's end below 200; 999 stands for what the driver can't name

var errXidForm = errors.New("give a number, a verdict, fit or unfit and, if you like, an action and a meaning, with tabs between")

// parseXid reads one line. What it leaves out is as it was.
func parseXid(text string, was map[int]XidVerdict) (xid int, verdict XidVerdict, err error) {
	if !utf8.ValidString(text) {
		return 0, verdict, errors.New("give UTF-8 text")
	}
	fields := strings.Split(text, "\t")
	if len(fields) < 3 || len(fields) > 5 {
		return 0, verdict, fmt.Errorf("%.40q has %d fields: %w", text, len(fields), errXidForm)
	}
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
		if strings.ContainsFunc(fields[i], func(r rune) bool { return !unicode.IsPrint(r) }) {
			return 0, verdict, fmt.Errorf("%.40q has characters that can't be shown: give plain text", fields[i])
		}
	}
	xid, err = strconv.Atoi(fields[0])
	if err != nil || xid < 1 || xid > mostXid || strconv.Itoa(xid) != fields[0] {
		return 0, verdict, fmt.Errorf("%.40q is no Xid: give a whole number of 1 to %d", fields[0], mostXid)
	}
	verdict = was[xid]
	switch verdict.Effect = Effect(fields[1]); verdict.Effect {
	case EffectFatal, EffectAsk, EffectApp, EffectWarn, EffectIgnore:
	default:
		return 0, verdict, fmt.Errorf("%.40q is no verdict: give %s, %s, %s, %s or %s",
			fields[1], EffectFatal, EffectAsk, EffectApp, EffectWarn, EffectIgnore)
	}
	if verdict.Next = Next(fields[2]); verdict.Next != NextFit && verdict.Next != NextUnfit {
		return 0, verdict, fmt.Errorf("%.40q does not say whether the GPU is fit for the next job: %w", fields[2], errXidForm)
	}
	if len(fields) > 3 && fields[3] != "" {
		verdict.Action = fields[3]
	}
	if len(fields) > 4 && fields[4] != "" {
		verdict.Meaning = fields[4]
	}
	return xid, verdict, nil
}
