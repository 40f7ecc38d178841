package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/signal"
)

// The variables by which processes hand a trace on, as OpenTelemetry has them.
const (
	traceParent = "TRACEPARENT"
	traceState  = "TRACESTATE"
)

// traceContext is a run's place in a distributed trace, by W3C's Trace Context.
type traceContext struct {
	trace, span string // in lower-case hex, of 16 and 8 bytes
	flags       string // of 1 byte
	parent      string // the span that the run is in; empty where the trace begins with the run
	state       string // what others have added for themselves
}

// traceOf is the trace of a run: the one that its environment tells of, in
// which the run is a span of its own; otherwise one that all its nodes derive
// alike. The nonce makes it unique, and can't be told from it.
func traceOf(lookup func(name string) string, run, nonce string) traceContext {
	sum := sha256.Sum256([]byte("bringupd trace\x00" + run + "\x00" + nonce))
	// A new trace counts as sampled: most drivers record what their parent does.
	own := traceContext{trace: hex.EncodeToString(sum[:16]), span: hex.EncodeToString(sum[16:24]), flags: "01"}
	outer, ok := parseTraceParent(lookup(traceParent))
	if !ok {
		return own // a state without its parent means nothing
	}
	outer.span, outer.parent = own.span, outer.span
	outer.state = lookup(traceState)
	return outer
}

var traceParentForm = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$`)

// parseTraceParent reads a header of version 00, or what a later version has in
// common with it.
func parseTraceParent(text string) (traceContext, bool) {
	parts := traceParentForm.FindStringSubmatch(text)
	if parts == nil {
		return traceContext{}, false
	}
	version, trace, span, flags, more := parts[1], parts[2], parts[3], parts[4], parts[5]
	switch {
	case version == "ff", version == "00" && more != "", strings.Trim(trace, "0") == "", strings.Trim(span, "0") == "":
		return traceContext{}, false
	case version != "00":
		flags = knownFlags(flags)
	}
	return traceContext{trace: trace, span: span, flags: flags}, true
}

// knownFlags keeps of a later version's flags the one that version 00 has.
func knownFlags(flags string) string {
	raw, _ := hex.DecodeString(flags) // its form is known
	return hex.EncodeToString([]byte{raw[0] & 1})
}

// String is the value of TRACEPARENT for what the run starts.
func (c traceContext) String() string { return "00-" + c.trace + "-" + c.span + "-" + c.flags }

// trace is the run's place in a trace, once there is a run directory.
func (n *node) trace() traceContext {
	lookup := func(name string) (value string) {
		for _, entry := range n.cfg.Environ {
			if set, ok := strings.CutPrefix(entry, name+"="); ok {
				value = set
			}
		}
		return value
	}
	return traceOf(lookup, n.dir.Name(), n.dir.Nonce())
}

// tellTrace notes where in a trace the run is, for who looks from there.
func (h *head) tellTrace() {
	trace := h.trace()
	fields := []zap.Field{zap.String("traceparent", trace.String())}
	if trace.parent != "" {
		fields = append(fields, zap.String("parent_span", trace.parent))
	}
	h.trail.event(signal.EventTrace, fields...)
}
