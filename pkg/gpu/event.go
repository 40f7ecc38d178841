package gpu

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
)

// Kind is what sort of thing befell a GPU.
type Kind string

// The kinds.
const (
	KindXid       Kind = "xid"       // the driver has named an error
	KindSXid      Kind = "sxid"      // the driver has named an error of an NVSwitch
	KindRecovery  Kind = "recovery"  // the GPU asks for an action (field 230)
	KindLost      Kind = "lost"      // the GPU can't be asked any more
	KindLink      Kind = "link"      // NVLinks that were active went down after an Xid; Detail names them
	KindC2C       Kind = "c2c"       // the GPU's link to the CPU went down after an Xid
	KindUnwatched Kind = "unwatched" // the driver does not tell of this GPU's events
	KindSilent    Kind = "silent"    // the watch, or a call about this GPU, has said nothing for long: the driver may hang
	KindAgain     Kind = "again"     // the watch has died and begins anew
	// What pkg/history makes of several runs: no watch tells of it.
	KindChanged Kind = "changed" // something is new since an earlier run
	KindCourse  Kind = "course"  // what the GPU has gone through in this one
	KindSuspect Kind = "suspect" // it has been suspicious before, in the same way
)

// Event is what befell a GPU while the driver ran.
type Event struct {
	At       time.Time `json:"at"`
	Kind     Kind      `json:"kind"`
	Xid      int       `json:"xid,omitempty"` // 999 where the driver can't name it; or an SXid
	GPU      int       `json:"gpu"`           // index; -1 where it is not known
	UUID     string    `json:"uuid,omitempty"`
	Bus      string    `json:"bus,omitempty"`      // as sysfs has it: 0000:3b:00.0
	Severity string    `json:"severity,omitempty"` // severityFatal, severityNonfatal; NVML does not tell
	Recovery int       `json:"recovery,omitempty"` // field 230, where it was read and is not 0
	Detail   string    `json:"detail,omitempty"`
	Count    int       `json:"count,omitempty"` // where it was repeated: how often, since it was told before
	Name     string    `json:"name,omitempty"`  // where it is about a network card and no GPU: mlx5_0
}

// Device names the GPU.
func (e Event) Device() check.Device {
	return check.Device{Index: e.GPU, Name: e.Name, UUID: e.UUID, Bus: e.Bus}
}

// Judged is an event, and what it is for the job.
type Judged struct {
	Event
	XidVerdict
}

// ReadJudged reads an event that a record bears; ok is false where it bears none.
func ReadJudged(record json.RawMessage) (j Judged, ok bool) {
	ok = len(record) > 0 && json.Unmarshal(record, &j) == nil
	return j, ok
}

// Finding is the event as a failed check would tell it, for who is to take the node out of service.
func (j Judged) Finding() check.Finding {
	device, what := j.Device(), j.Meaning
	if j.Kind == KindXid {
		what = fmt.Sprintf("Xid %d: %s", j.Xid, j.Meaning)
	}
	return check.Finding{ID: "gpu." + string(j.Kind), Device: &device, Verdict: check.Fail, Class: check.Node, Observed: what, Hint: j.Action}
}

// Judge says what an event is for the job, and for the next one.
func (t XidTable) Judge(e Event) Judged {
	return Judged{Event: e, XidVerdict: t.judge(e)}
}

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

// judgeXid: a GPU that asks for a recovery action is unfit whatever the Xid. What is left of an Xid that asks is a
// warning: the watch looks at the GPU, and tells what it then finds as an event of its own.
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

// askedFor says what it is for the job that a GPU asks for an action. One that we can't name is one all the same: DCGM
// drops the 5 that it does not know.
func askedFor(recovery int) XidVerdict {
	if recovery == 0 {
		return XidVerdict{EffectIgnore, NextFit, "nothing", "the GPU asks for nothing"}
	}
	if known, ok := Recoveries[recovery]; ok {
		return XidVerdict{known.Now, NextUnfit, known.Action, known.Meaning}
	}
	return XidVerdict{EffectFatal, NextUnfit, "drain the node, and see nvidia-smi -q: GPU Recovery Action", fmt.Sprintf("the GPU asks for the recovery action %d", recovery)}
}

// String is one line for people: what befell which GPU, and what to do.
func (j Judged) String() string {
	var b strings.Builder
	switch {
	case j.GPU >= 0, j.Name != "":
		b.WriteString(j.Device().String() + ": ")
	case j.Kind == KindSXid:
		b.WriteString("NVSwitch " + j.Bus + ": ")
	case j.Kind != KindAgain && j.Kind != KindSilent: // those are of all
		b.WriteString("an unknown GPU: ")
	}
	switch j.Kind {
	case KindXid:
		fmt.Fprintf(&b, "Xid %d: ", j.Xid)
	case KindSXid:
		fmt.Fprintf(&b, "SXid %d: ", j.Xid)
	}
	b.WriteString(j.Meaning)
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

// A repeated event is told at once, and after these times: an error in a loop comes a thousand times a second.
const (
	firstRepeat = 10 * time.Second
	lastRepeat  = 10 * time.Minute

	mostRepeated = 4096 // different events that are told apart: 16 GPUs have far fewer
)

// Repeats thins out events that are repeated. The zero value has seen none. It is not safe for concurrent use.
type Repeats struct{ seen map[Event]*repeated }

type repeated struct {
	untold int
	next   time.Time
	pause  time.Duration
}

// alike is the same for events that are the same, whenever and however often they came.
func (e Event) alike() Event {
	e.At, e.Count, e.Severity = time.Time{}, 0, ""
	if e.Kind == KindXid || e.Kind == KindSXid { // the kernel's words have numbers in them that differ each time
		e.Detail = ""
	}
	if e.UUID != "" {
		e.Bus = ""
	}
	return e
}

// Pass tells whether an event is to be told now. Where it was repeated, its Count is set to how often since it was told
// before.
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
