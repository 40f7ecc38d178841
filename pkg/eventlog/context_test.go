package eventlog

import (
	"regexp"
	"testing"
)

func TestContextOf(t *testing.T) {
	const (
		trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
		outer       = "00-" + trace + "-" + span + "-01"
	)
	own := NewTraceContext(nil, "17.0", "nonce")
	if !regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`).MatchString(own.String()) || own.ParentSpan != "" {
		t.Errorf("a trace of its own is %+v", own)
	}
	for _, tc := range []struct {
		name, parent, state string
		want                TraceContext
	}{
		{"none", "", "", own},
		{"a state alone", "", "a=1", own},
		{"one that goes on", outer, "a=1,b=2", TraceContext{State: "a=1,b=2", ParentSpan: span, trace: trace, span: own.span, flags: "01"}},
		{"one that is not sampled", "00-" + trace + "-" + span + "-00", "", TraceContext{State: "", ParentSpan: span, trace: trace, span: own.span, flags: "00"}},
		{"one of a later version", "01-" + trace + "-" + span + "-ff-what-comes", "", TraceContext{State: "", ParentSpan: span, trace: trace, span: own.span, flags: "01"}},
		{"of a later version, not sampled", "cc-" + trace + "-" + span + "-fe", "", TraceContext{State: "", ParentSpan: span, trace: trace, span: own.span, flags: "00"}},
		{"the version that none has", "ff-" + trace + "-" + span + "-01", "", own},
		{"version 00 with more", outer + "-00", "a=1", own},
		{"no trace", "00-00000000000000000000000000000000-" + span + "-01", "", own},
		{"no span", "00-" + trace + "-0000000000000000-01", "", own},
		{"in capitals", "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + span + "-01", "", own},
		{"something else", "trace me", "", own},
		{"a line behind it", outer + "\n", "", own},
	} {
		t.Run(tc.name, func(t *testing.T) {
			environ := []string{"TRACEPARENT=earlier", "HOME=/h", "TRACEPARENT=" + tc.parent, "TRACESTATE=" + tc.state}
			if got := NewTraceContext(environ, "17.0", "nonce"); got != tc.want {
				t.Errorf("got %+v, not %+v", got, tc.want)
			}
		})
	}
	for _, other := range []TraceContext{NewTraceContext(nil, "17.0", "another"), NewTraceContext(nil, "17.0-r1", "nonce")} {
		if other.trace == own.trace || other.span == own.span {
			t.Errorf("another run has the same: %+v", other)
		}
	}
}
