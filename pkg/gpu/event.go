package gpu

import (
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
	KindRecovery  Kind = "recovery"  // the GPU asks for an action (field 230)
	KindLost      Kind = "lost"      // the GPU can't be asked any more
	KindUnwatched Kind = "unwatched" // the driver does not tell of this GPU's events
	KindSilent    Kind = "silent"    // the watch, or a call about this GPU, has said nothing for long: the driver may hang
	KindAgain     Kind = "again"     // the watch has died and begins anew
	KindLink      Kind = "link"      // NVLinks that were active went down after an Xid
	KindC2C       Kind = "c2c"       // the GPU's link to the CPU went down after an Xid
)

// Event is what befell a GPU while the driver ran.
type Event struct {
	At       time.Time `json:"at"`
	Kind     Kind      `json:"kind"`
	Xid      int       `json:"xid,omitempty"` // 999 where the driver can't name it
	GPU      int       `json:"gpu"`           // index; -1 where it is not known
	UUID     string    `json:"uuid,omitempty"`
	Bus      string    `json:"bus,omitempty"`      // as sysfs has it: 0000:3b:00.0
	Severity string    `json:"severity,omitempty"` // severityFatal, severityNonfatal; NVML does not tell
	Recovery int       `json:"recovery,omitempty"` // field 230, where it was read and is not 0
	Detail   string    `json:"detail,omitempty"`
	Count    int       `json:"count,omitempty"` // where it was repeated: how often, since it was told before
}

// Device names the GPU.
func (e Event) Device() check.Device {
	return check.Device{Index: e.GPU, UUID: e.UUID, Bus: e.Bus}
}

// Judged is an event, and what it is for the job.
type Judged struct {
	Event
	XidVerdict
}

// Judge says what an event is for the job.
func (t XidTable) Judge(e Event) Judged {
	return Judged{Event: e, XidVerdict: t.judge(e)}
}

func (t XidTable) judge(e Event) XidVerdict {
	switch e.Kind {
	case KindXid:
		verdict := t.verdict(e.Xid, e.Severity)
		if verdict.Effect != EffectAsk {
			return verdict
		}
		verdict.Effect = EffectWarn
		if e.Recovery != 0 {
			asked := askedFor(e.Recovery)
			verdict.Effect, verdict.Action = asked.Effect, asked.Action
		}
		return verdict
	case KindRecovery:
		return askedFor(e.Recovery)
	case KindLost:
		if e.Detail == string(ResetRequired) {
			return XidVerdict{EffectFatal, "drain the node, and reset the GPU", "the GPU does no more until it is reset"}
		}
		return XidVerdict{EffectFatal, "drain the node, and reboot it; if it comes back, have the GPU's seat and power looked at", "the GPU is lost"}
	case KindUnwatched:
		return XidVerdict{EffectWarn, "nothing; what befalls this GPU is seen by the driver only", "the events of this GPU can't be watched"}
	case KindSilent:
		if e.GPU >= 0 {
			return XidVerdict{EffectWarn, "see whether nvidia-smi answers on the node: if not, only a reboot helps", "the driver does not answer about this GPU: it may hang"}
		}
		return XidVerdict{EffectWarn, "see whether nvidia-smi answers on the node: if not, only a reboot helps", "the watch of the GPUs says nothing any more: the driver may hang"}
	case KindAgain:
		return XidVerdict{EffectWarn, "nothing", "the watch of the GPUs has ended, and begins anew"}
	default:
		return XidVerdict{EffectWarn, "nothing", fmt.Sprintf("an event of a kind that this bringupd does not know: %s", e.Kind)}
	}
}

// askedFor says what it is for the job that a GPU asks for an action. One that we can't name is one all the same: DCGM
// drops the 5 that it does not know.
func askedFor(recovery int) XidVerdict {
	if recovery == 0 {
		return XidVerdict{EffectIgnore, "nothing", "the GPU asks for nothing"}
	}
	if known, ok := Recoveries[recovery]; ok {
		return XidVerdict{EffectFatal, known.Action, known.Meaning}
	}
	return XidVerdict{EffectFatal, "drain the node, and see nvidia-smi -q: GPU Recovery Action", fmt.Sprintf("the GPU asks for the recovery action %d", recovery)}
}

// String is one line for people: what befell which GPU, and what to do.
func (j Judged) String() string {
	var b strings.Builder
	if j.GPU < 0 {
		b.WriteString("an unknown GPU")
	} else {
		b.WriteString(j.Device().String())
	}
	if j.Kind == KindXid {
		fmt.Fprintf(&b, ": Xid %d", j.Xid)
	}
	fmt.Fprintf(&b, ": %s", j.Meaning)
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

// dedup thins out events that are repeated. The zero value has seen none. It is not safe for concurrent use.
type dedup struct{ seen map[Event]*repeats }

type repeats struct {
	untold int
	next   time.Time
	pause  time.Duration
}

// alike is the same for events that are the same, whenever and however often they came.
func (e Event) alike() Event {
	e.At, e.Count, e.Severity = time.Time{}, 0, ""
	if e.UUID != "" {
		e.Bus = ""
	}
	return e
}

// pass tells whether an event is to be told now. Where it was repeated, its Count is set to how often since it was told
// before.
func (d *dedup) pass(e Event, now time.Time) (Event, bool) {
	if d.seen == nil {
		d.seen = map[Event]*repeats{}
	}
	key := e.alike()
	if d.seen[key] == nil && len(d.seen) >= mostRepeated {
		key = Event{}
	}
	was := d.seen[key]
	if was == nil {
		d.seen[key] = &repeats{next: now.Add(firstRepeat), pause: firstRepeat}
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
