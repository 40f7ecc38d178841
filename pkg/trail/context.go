package trail

import (
	"crypto/sha256"
	"encoding/hex"
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
	parts := strings.SplitN(text, "-", 5)
	if len(parts) < 4 || strings.Contains(text, "\n") {
		return c, false
	}
	version, trace, span, flags := parts[0], parts[1], parts[2], parts[3]
	switch {
	case !isHex(version, 1), !isHex(trace, 16), !isHex(span, 8), !isHex(flags, 1),
		version == "ff", version == "00" && len(parts) > 4, strings.Trim(trace, "0") == "", strings.Trim(span, "0") == "":
		return c, false
	case version != "00":
		flags = knownFlags(flags)
	}
	return TraceContext{trace: trace, span: span, flags: flags}, true
}

// isHex tells whether a text is that many bytes in lower-case hex.
func isHex(text string, bytes int) bool {
	_, err := hex.DecodeString(text)
	return err == nil && len(text) == 2*bytes && text == strings.ToLower(text)
}

// knownFlags keeps of a later version's flags the one that version 00 has.
func knownFlags(flags string) string {
	raw, _ := hex.DecodeString(flags) // it was seen to be hex
	return hex.EncodeToString([]byte{raw[0] & 1})
}

// String is the value of TRACEPARENT for what the run starts.
func (c TraceContext) String() string { return "00-" + c.trace + "-" + c.span + "-" + c.flags }
