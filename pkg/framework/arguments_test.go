package framework

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseArguments(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want Arguments // nil: refused
	}{
		{"a value apart", []string{"--a", "1"}, Arguments{"--a=1"}},
		{"a value with a sign in it", []string{"--a=b=c"}, Arguments{"--a=b=c"}},
		{"a switch", []string{"--on", "--a=1"}, Arguments{"--on", "--a=1"}},
		{"a switch with a value", []string{"--on=1"}, Arguments{"--on=1"}},
		{"no flag", []string{"stop"}, nil},
		{"dashes only", []string{"--"}, nil},
		{"no value", []string{"--a"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParseArguments("prog", tc.args, []string{"--on"}, "--a=1")
			if (err != nil) != (tc.want == nil) {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestArguments(t *testing.T) {
	args := Arguments{"--a=1", "--on", "--a=2", "--port=80", "--far=70000"}
	if value, found := args.LastValue("--a"); value != "2" || !found {
		t.Errorf("the last --a is %q, %v", value, found)
	}
	if !args.HasFlag("--on") || args.HasFlag("--off") {
		t.Error("--on is not there, or --off is")
	}
	for _, tc := range []struct {
		name string
		port int // -1: refused
	}{{"--port", 80}, {"--none", 7}, {"--far", -1}, {"--on", -1}} {
		if port, err := args.PortValue(tc.name, 7); (err != nil) != (tc.port < 0) || err == nil && port != tc.port {
			t.Errorf("%s is %d: %v", tc.name, port, err)
		}
	}
	if err := args.RejectFlags("prog", map[string]string{"--on": "it is on"}); err == nil ||
		err.Error() != "cannot pass --on to prog: it is on" {
		t.Errorf("our own flag: %v", err)
	}
	if err := args.RejectFlags("prog", map[string]string{"--off": ""}); err != nil {
		t.Error(err)
	}
}
