package trail

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// The variables by which processes hand a trace on, as OpenTelemetry has them.
const (
	ParentVariable = "TRACEPARENT"
	StateVariable  = "TRACESTATE"
)

// TraceContext is a run's place in a distributed trace, by W3C's Trace Context.
type TraceContext struct {
	State string // TRACESTATE: what others have added for themselves
	Outer string // the span that the run is in; empty where the trace begins with the run

	trace, span string // in lower-case hex, of 16 and 8 bytes
	flags       string // of 1 byte
}

// ContextOf is the trace of a run: the one that its environment tells of, in
// which the run is a span of its own; otherwise one that all its nodes derive
// alike. The nonce makes it unique, and can't be told from it.
func ContextOf(environ []string, run, nonce string) TraceContext {
	var parent, state string
	for _, entry := range environ {
		switch name, value, _ := strings.Cut(entry, "="); name {
		case ParentVariable:
			parent = value
		case StateVariable:
			state = value
		}
	}
	sum := sha256.Sum256([]byte("bringupd trace\x00" + run + "\x00" + nonce))
	// A new trace counts as sampled: most drivers record what their parent does.
	own := TraceContext{trace: hex.EncodeToString(sum[:16]), span: hex.EncodeToString(sum[16:24]), flags: "01"}
	outer, ok := parseParent(parent)
	if !ok {
		return own // a state without its parent means nothing
	}
	outer.span, outer.Outer, outer.State = own.span, outer.span, state
	return outer
}

// parseParent reads a header of version 00, or what a later version has in
// common with it.
func parseParent(text string) (c TraceContext, ok bool) {
	if text == "" {
		return c, false
	}
	// It is asked for by no command: nobody else is to pay for it.
	form := regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$`)
	parts := form.FindStringSubmatch(text)
	if parts == nil {
		return c, false
	}
	version, trace, span, flags := parts[1], parts[2], parts[3], parts[4]
	if version == "ff" || version == "00" && parts[5] != "" || strings.Trim(trace, "0") == "" || strings.Trim(span, "0") == "" {
		return c, false
	}
	if version != "00" { // of its flags, version 00 has the last
		bits, _ := hex.DecodeString(flags) // it is hex
		flags = hex.EncodeToString([]byte{bits[0] & 1})
	}
	return TraceContext{trace: trace, span: span, flags: flags}, true
}

// String is the value of TRACEPARENT for what the run starts.
func (c TraceContext) String() string { return "00-" + c.trace + "-" + c.span + "-" + c.flags }
