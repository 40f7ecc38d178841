package eventlog

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// Environment variables that pass a trace on to child processes, as in OpenTelemetry.
const (
	TraceParentVariable = "TRACEPARENT"
	TraceStateVariable  = "TRACESTATE"
)

// TraceContext is a run's position in a distributed trace, according to W3C Trace Context.
type TraceContext struct {
	State      string // value of TRACESTATE: vendor-specific data
	ParentSpan string // the parent span of the run; empty if the trace begins with the run

	trace, span string // in lower-case hexadecimal, 16 and 8 bytes
	flags       string // 1 byte
}

// NewTraceContext returns the trace context of a run. If environ has a trace context, the run
// becomes a span in that trace. Otherwise it starts a new trace, with IDs that all nodes derive
// from run and nonce. The nonce makes them unique and cannot be computed from them.
func NewTraceContext(environ []string, run, nonce string) TraceContext {
	var parent, state string
	for _, entry := range environ {
		switch name, value, _ := strings.Cut(entry, "="); name {
		case TraceParentVariable:
			parent = value
		case TraceStateVariable:
			state = value
		}
	}
	sum := sha256.Sum256([]byte("bringupd trace\x00" + run + "\x00" + nonce))
	// A new trace is marked as sampled: most drivers follow the decision of their parent.
	own := TraceContext{trace: hex.EncodeToString(sum[:16]), span: hex.EncodeToString(sum[16:24]), flags: "01"}
	outer, ok := parseTraceParent(parent)
	if !ok {
		return own // a state without a parent has no meaning
	}
	outer.span, outer.ParentSpan, outer.State = own.span, outer.span, state
	return outer
}

func parseTraceParent(text string) (c TraceContext, ok bool) {
	if text == "" {
		return c, false
	}
	// Compiled here, not in a package variable: most commands never need it.
	form := regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$`)
	parts := form.FindStringSubmatch(text)
	if parts == nil {
		return c, false
	}
	version, trace, span, flags := parts[1], parts[2], parts[3], parts[4]
	if version == "ff" || version == "00" && parts[5] != "" || strings.Trim(trace, "0") == "" ||
		strings.Trim(span, "0") == "" {
		return c, false
	}
	if version != "00" { // version 00 has only the last of the flags
		bits, _ := hex.DecodeString(flags) // already matched as hexadecimal
		flags = hex.EncodeToString([]byte{bits[0] & 1})
	}
	return TraceContext{trace: trace, span: span, flags: flags}, true
}

// String returns the value of TRACEPARENT for child processes of the run.
func (c TraceContext) String() string { return "00-" + c.trace + "-" + c.span + "-" + c.flags }
