package daemon

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
)

func TestTraceOf(t *testing.T) {
	const (
		trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
		outer       = "00-" + trace + "-" + span + "-01"
	)
	own := traceOf(func(string) string { return "" }, "17.0", "nonce")
	if !regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`).MatchString(own.String()) || own.parent != "" {
		t.Errorf("a trace of its own is %+v", own)
	}
	for _, tc := range []struct {
		name, parent, state string
		want                traceContext
	}{
		{"none", "", "", own},
		{"a state alone", "", "a=1", own},
		{"one that goes on", outer, "a=1,b=2", traceContext{trace, own.span, "01", span, "a=1,b=2"}},
		{"one that is not sampled", "00-" + trace + "-" + span + "-00", "", traceContext{trace, own.span, "00", span, ""}},
		{"one of a later version", "01-" + trace + "-" + span + "-ff-what-comes", "", traceContext{trace, own.span, "01", span, ""}},
		{"of a later version, not sampled", "cc-" + trace + "-" + span + "-fe", "", traceContext{trace, own.span, "00", span, ""}},
		{"the version that none has", "ff-" + trace + "-" + span + "-01", "", own},
		{"version 00 with more", outer + "-00", "a=1", own},
		{"no trace", "00-00000000000000000000000000000000-" + span + "-01", "", own},
		{"no span", "00-" + trace + "-0000000000000000-01", "", own},
		{"in capitals", "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + span + "-01", "", own},
		{"something else", "trace me", "", own},
		{"a line behind it", outer + "\n", "", own},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := map[string]string{traceParent: tc.parent, traceState: tc.state}
			if got := traceOf(func(name string) string { return env[name] }, "17.0", "nonce"); got != tc.want {
				t.Errorf("got %+v, not %+v", got, tc.want)
			}
		})
	}
	for _, other := range []traceContext{traceOf(func(string) string { return "" }, "17.0", "another"), traceOf(func(string) string { return "" }, "17.0-r1", "nonce")} {
		if other.trace == own.trace || other.span == own.span {
			t.Errorf("another run has the same: %+v", other)
		}
	}
}

// The driver goes on with the trace that the job is in, and the events tell.
func TestTraceOfAJob(t *testing.T) {
	t.Parallel()
	const outer = "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, tc := range []struct{ name, parent, want string }{
		{"of its own", "", `^TRACEPARENT=(00-[0-9a-f]{32}-[0-9a-f]{16}-01)\n$`},
		{"of who has started it", "00-" + outer + "-00f067aa0ba902b7-01", `^TRACEPARENT=(00-` + outer + `-[0-9a-f]{16}-01)\nTRACESTATE=a=1\n$`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, 1, "env | grep ^TRACE | sort").all(func(c *Config) {
				c.Environ = with(c.Environ, map[string]string{traceParent: tc.parent, traceState: "a=1"})
			})
			j.start().expect(0)
			said := regexp.MustCompile(tc.want).FindStringSubmatch(j.contents(j.out))
			if said == nil {
				t.Fatalf("the driver has %q", j.contents(j.out))
			}
			events, err := os.ReadFile(filepath.Join(j.run(), signal.Events, "0000.jsonl"))
			if err != nil || !strings.Contains(string(events), `"event":"trace"`) || !strings.Contains(string(events), `"traceparent":"`+said[1]+`"`) ||
				strings.Contains(string(events), `"parent_span":"00f067aa0ba902b7"`) != (tc.parent != "") {
				t.Errorf("the events are %s: %v", events, err)
			}
		})
	}
}
