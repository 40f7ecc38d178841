package gpu

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
)

// Kind is the type of an event.
type Kind string

// The kinds.
const (
	KindXid       Kind = "xid"       // the driver has reported an error
	KindSXid      Kind = "sxid"      // the driver has reported an error of an NVSwitch
	KindRecovery  Kind = "recovery"  // the GPU requests an action (field 230)
	KindLost      Kind = "lost"      // the GPU does not answer any more
	KindLink      Kind = "link"      // active NVLinks went down after an Xid; Detail names them
	KindC2C       Kind = "c2c"       // the GPU's link to the CPU went down after an Xid
	KindUnwatched Kind = "unwatched" // the driver does not report this GPU's events
	KindSilent    Kind = "silent"    // for long, the watch had no output, or a call for this GPU has not returned: the driver may hang
	KindAgain     Kind = "again"     // the watch has died and was restarted
	// Kinds that pkg/history derives from several runs; the watch does not report them.
	KindChanged Kind = "changed" // something has changed since an earlier run
	KindCourse  Kind = "course"  // the GPU's counters in this run
	KindSuspect Kind = "suspect" // it was suspicious before, in the same way
)

// Event is an event of a GPU, or of the watch, during a job.
type Event struct {
	At       time.Time `json:"at"`
	Kind     Kind      `json:"kind"`
	Xid      int       `json:"xid,omitempty"` // number of the Xid, 999 if the driver cannot name it; or of the SXid
	GPU      int       `json:"gpu"`           // index; -1 if unknown
	UUID     string    `json:"uuid,omitempty"`
	Bus      string    `json:"bus,omitempty"`      // in the format of sysfs: 0000:3b:00.0
	Severity string    `json:"severity,omitempty"` // severityFatal or severityNonfatal; NVML does not provide it
	Recovery int       `json:"recovery,omitempty"` // field 230, if it was read and is not 0
	Detail   string    `json:"detail,omitempty"`
	Count    int       `json:"count,omitempty"` // for a repeated event: how often since the last report
	Name     string    `json:"name,omitempty"`  // if it is about a network card instead of a GPU: mlx5_0
}

// Device returns the GPU or network card that the event is about.
func (e Event) Device() check.Device {
	return check.Device{Index: e.GPU, Name: e.Name, UUID: e.UUID, Bus: e.Bus}
}

// Judged is an event with its classification: its effects on the job and on the next one.
type Judged struct {
	Event
	XidVerdict
}

// ReadJudged decodes the event in a record; ok is false if the record has none, or an invalid one.
func ReadJudged(record json.RawMessage) (j Judged, ok bool) {
	ok = len(record) > 0 && json.Unmarshal(record, &j) == nil
	return j, ok
}

// Finding returns the event in the form of a failed check, as the command that drains a node
// expects it.
func (j Judged) Finding() check.Finding {
	device, what := j.Device(), j.Meaning
	if j.Kind == KindXid {
		what = fmt.Sprintf("Xid %d: %s", j.Xid, j.Meaning)
	}
	return check.Finding{ID: "gpu." + string(j.Kind), Device: &device, Verdict: check.Fail, Class: check.Node, Observed: what, Hint: j.Action}
}

// Judge classifies an event: it returns the event with its effects on this job and on the next one.
func (t XidTable) Judge(e Event) Judged {
	return Judged{Event: e, XidVerdict: t.judge(e)}
}

// judge returns the effects of an event on this job and on the next one, its meaning, and the
// action that an operator must take.
func (t XidTable) judge(e Event) XidVerdict {
	switch e.Kind {
	case KindXid:
		return t.judgeXid(e)
	case KindSXid:
		if e.Severity == severityFatal {
			return XidVerdict{EffectWarn, NextUnfit, "drain the node, and reset its GPUs and NVSwitches together, or reboot it", "an NVSwitch has met a fatal error"}
		}
		return XidVerdict{EffectWarn, NextFit, "nothing", "an NVSwitch has met an error"}
	case KindRecovery:
		return askedFor(e.Recovery)
	case KindLost:
		if e.Detail == string(ResetRequired) {
			return XidVerdict{EffectFatal, NextUnfit, "drain the node, and reset the GPU", "the GPU does no more until it is reset"}
		}
		return XidVerdict{EffectFatal, NextUnfit, "drain the node, and reboot it; if it comes back, have the GPU's seat and power looked at", "the GPU is lost"}
	case KindLink:
		return XidVerdict{EffectFatal, NextUnfit, "drain the node, and reset the GPUs of the fabric; if it comes back, have link and peer tested", "NVLinks that were active have gone down"}
	case KindC2C:
		return XidVerdict{EffectFatal, NextUnfit, "drain the node, and reset the GPU; if it comes back, replace the GPU (RMA)", "the link to the CPU (C2C) has gone down"}
	case KindUnwatched:
		return XidVerdict{EffectWarn, NextFit, "nothing; what befalls this GPU is seen by the driver only", "the events of this GPU can't be watched"}
	case KindSilent:
		if e.GPU >= 0 {
			return XidVerdict{EffectWarn, NextFit, "see whether nvidia-smi answers on the node: if not, only a reboot helps", "the driver does not answer about this GPU: it may hang"}
		}
		return XidVerdict{EffectWarn, NextFit, "see whether nvidia-smi answers on the node: if not, only a reboot helps", "the watch of the GPUs says nothing any more: the driver may hang"}
	case KindAgain:
		return XidVerdict{EffectWarn, NextFit, "nothing", "the watch of the GPUs has ended, and begins anew"}
	default:
		return XidVerdict{EffectWarn, NextFit, "nothing", fmt.Sprintf("an event of a kind that this bringupd does not know: %s", e.Kind)}
	}
}

// judgeXid classifies an Xid. A GPU that requests a recovery action is unfit for another job,
// whatever the Xid. If the table has EffectAsk, the recovery action decides. Without one the Xid is
// a warning: the watch polls the GPU, and reports what it finds as another event.
func (t XidTable) judgeXid(e Event) XidVerdict {
	verdict, asked := t.verdict(e.Xid, e.Severity), askedFor(e.Recovery)
	if asked.Next == NextUnfit {
		verdict.Next = NextUnfit
	}
	if verdict.Effect == EffectAsk {
		verdict.Effect = EffectWarn
		if e.Recovery != 0 {
			verdict.Effect, verdict.Action = asked.Effect, asked.Action
		}
	}
	return verdict
}

// askedFor returns the effects of a recovery action that a GPU requests. An action that is not in
// Recoveries is fatal. (DCGM, in contrast, drops the values that it does not know, such as 5.)
func askedFor(recovery int) XidVerdict {
	if recovery == 0 {
		return XidVerdict{EffectIgnore, NextFit, "nothing", "the GPU asks for nothing"}
	}
	if known, ok := Recoveries[recovery]; ok {
		return XidVerdict{known.Now, NextUnfit, known.Action, known.Meaning}
	}
	return XidVerdict{EffectFatal, NextUnfit, "drain the node, and see nvidia-smi -q: GPU Recovery Action", fmt.Sprintf("the GPU asks for the recovery action %d", recovery)}
}

// String returns one line for a log or a terminal: which GPU, what happened, and what to do.
func (j Judged) String() string {
	var b strings.Builder
	switch {
	case j.GPU >= 0, j.Name != "":
		b.WriteString(j.Device().String() + ": ")
	case j.Kind == KindSXid:
		b.WriteString("NVSwitch " + j.Bus + ": ")
	case j.Kind != KindAgain && j.Kind != KindSilent: // these are about all GPUs
		b.WriteString("an unknown GPU: ")
	}
	switch j.Kind {
	case KindXid:
		fmt.Fprintf(&b, "Xid %d: ", j.Xid)
	case KindSXid:
		fmt.Fprintf(&b, "SXid %d: ", j.Xid)
	}
	b.WriteString(j.Meaning)
	// Append the details, the number of repetitions and what to do.
	if j.Detail != "" {
		fmt.Fprintf(&b, " (%s)", j.Detail)
	}
	if j.Count > 1 {
		fmt.Fprintf(&b, ", %d times more", j.Count)
	}
	if j.Action != "" && j.Action != "nothing" {
		fmt.Fprintf(&b, "; %s", j.Action)
	}
	return b.String()
}

// A new event is reported at once, and repetitions of it at intervals that double from firstRepeat
// to lastRepeat: an error in a loop occurs a thousand times a second.
const (
	firstRepeat = 10 * time.Second
	lastRepeat  = 10 * time.Minute

	mostRepeated = 4096 // maximum number of different events that are tracked; 16 GPUs have far fewer
)

// Repeats limits how often repeated events are reported. Its zero value is ready for use. It is not
// safe for concurrent use.
type Repeats struct{ seen map[Event]*repeated }

type repeated struct {
	untold int
	next   time.Time
	pause  time.Duration
}

// alike returns the event without the fields that differ between repetitions.
func (e Event) alike() Event {
	e.At, e.Count, e.Severity = time.Time{}, 0, ""
	if e.Kind == KindXid || e.Kind == KindSXid { // the kernel's messages contain numbers that differ each time
		e.Detail = ""
	}
	if e.UUID != "" {
		e.Bus = ""
	}
	return e
}

// Pass reports whether an event should be reported now. If it is a repetition, Count of the
// returned event is the number of repetitions since the last report. Once too many different events
// are tracked, all new ones count as repetitions of one event.
func (d *Repeats) Pass(e Event, now time.Time) (Event, bool) {
	if d.seen == nil {
		d.seen = map[Event]*repeated{}
	}
	key := e.alike()
	if d.seen[key] == nil && len(d.seen) >= mostRepeated {
		key = Event{}
	}
	was := d.seen[key]
	if was == nil {
		d.seen[key] = &repeated{next: now.Add(firstRepeat), pause: firstRepeat}
		return e, true
	}
	was.untold += max(e.Count, 1)
	if now.Before(was.next) {
		return Event{}, false
	}
	e.Count, was.untold = was.untold, 0
	was.pause = min(2*was.pause, lastRepeat)
	was.next = now.Add(was.pause)
	return e, true
}
