package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// have replaces test/setup.sh: a share can be installed, a browser cannot.
const have = `have_share() {
	if [ -n "${ANNOUNCE:-}" ]; then printf '30 MB: a disk\n4 MB: a share\n4 MB: a share\n'; else echo installed; fi
}
have_browser() { echo "NOT RUN: no browser" >&2; return 1; }
`

func runParts(t *testing.T, ctx context.Context, strict bool,
	parts ...part) (output string, err error) {
	t.Helper()
	var out strings.Builder
	s := &suite{parts: parts, setup: have, stdout: &out, strict: strict, before: "a few parts"}
	err = s.run(ctx)
	return out.String(), err
}

// TestTableNamesEveryPart checks the table and the error after parts that fail or cannot run.
func TestTableNamesEveryPart(t *testing.T) {
	parts := []part{
		{name: "well", needs: []string{"share"}, command: "echo one; echo two >&2"},
		{name: "bad", command: "echo three; exit 4"},
		{name: "after it", command: "echo four"},
		{name: "beside it", lane: computes, command: "echo five"},
		{name: "page", needs: []string{"browser", "share"}, command: "echo six"},
		{name: "database", lenient: true, command: "echo seven; echo NOT RUN: no network; exit 77"},
	}
	for _, tc := range []struct {
		name   string
		parts  []part
		strict bool
		err    string
	}{
		{"a failure", parts, false, "failed or could not run: bad (1 of 6 parts)"},
		{"a failure, in CI", parts, true, "failed or could not run: page; bad (2 of 6 parts)"},
		{"none", append(parts[:1:1], parts[2:]...), false, ""},
		{"in CI, what is no failure there either", parts[5:], true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := runParts(t, t.Context(), tc.strict, tc.parts...)
			if got := errorText(err); got != tc.err {
				t.Errorf("the error is %q, not %q", got, tc.err)
			}
			_, table, _ := strings.Cut(out, "\npart ")
			for _, p := range tc.parts {
				if strings.Count(out, "== "+p.name+": ") != 1 ||
					!strings.Contains(table, "\n"+p.name+" ") {
					t.Errorf("%s is not reported once and in the table:\n%s", p.name, out)
				}
			}
			if len(tc.parts) > 1 && !strings.Contains(table, "NOT RUN: no browser\n") {
				t.Errorf("the table lacks the reason why the page was not tested:\n%s", out)
			}
			if strings.Contains(out, "six") || !strings.Contains(out, "seven\n") {
				t.Errorf("the output is:\n%s", out)
			}
		})
	}
}

// TestAnnounce checks what is printed before the first part.
func TestAnnounce(t *testing.T) {
	const lacks = "This machine lacks the following, which is installed now: 34 MB on disk.\n" +
		"30 MB: a disk\n4 MB: a share\n"
	for name, tc := range map[string]struct {
		needs []string
		want  string
	}{
		"something is missing": {[]string{"share", "browser"}, lacks},
		"nothing is missing":   {nil, ""},
		"nothing can be had":   {[]string{"browser"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			out, _ := runParts(t, t.Context(), false, part{name: "a", needs: tc.needs})
			if !strings.HasPrefix(out, tc.want+"a few parts\n") {
				t.Errorf("want %q first in:\n%s", tc.want, out)
			}
		})
	}
}

// TestOutputIsNotMixed runs two parts concurrently and checks that the output of each is printed
// without interruption.
func TestOutputIsNotMixed(t *testing.T) {
	both := filepath.Join(t.TempDir(), "both")
	meet := func(own, other string) string {
		return "echo " + own + "1; touch " + both + own + "; until [ -e " + both + other +
			" ]; do sleep 0.01; done; echo " + own + "2; exit 1"
	}
	out, _ := runParts(t, t.Context(), false, part{name: "x", command: meet("a", "b")},
		part{name: "y", lane: computes, command: meet("b", "a")})
	for _, want := range []string{"\na1\na2\n", "\nb1\nb2\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
}

// TestInterrupt interrupts a run and checks that the processes of its parts end and that it counts
// as a failure.
func TestInterrupt(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for {
			if _, err := os.Stat(started); err == nil || ctx.Err() != nil {
				cancel()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	out, err := runParts(t, ctx, false,
		part{name: "long", command: "touch " + started + "; sleep 60; echo over"},
		part{name: "next", command: "echo no"})
	if err == nil || strings.Contains(out, "over") ||
		strings.Count(out, "NOT RUN: interrupted") != 4 {
		t.Errorf("the error is %v, and the output is:\n%s", err, out)
	}
}

// TestRaceOptions checks the race detector's options in a part: they disable the sleep at exit, and
// the caller's own options come last, where they take precedence.
func TestRaceOptions(t *testing.T) {
	t.Setenv("GORACE", "exitcode=199")
	out, err := runParts(t, t.Context(), false, part{name: "race", command: `echo "[$GORACE]"`})
	if err != nil || !strings.Contains(out, "[atexit_sleep_ms=0 exitcode=199]") {
		t.Errorf("the output is %s: %v", out, err)
	}
}

// TestPartsAreWellFormed checks that test/setup.sh can install the needs of each part, that each
// group has a make target, and that make test runs the gate.
func TestPartsAreWellFormed(t *testing.T) {
	setup, err := os.ReadFile("../../setup.sh")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, p := range allParts {
		if names[p.name] {
			t.Errorf("two parts have the name %s", p.name)
		}
		names[p.name] = true
		for _, name := range p.needs {
			if !strings.Contains(string(setup), "\nhave_"+name+"() {") {
				t.Errorf("%s: test/setup.sh has no have_%s", p.name, name)
			}
		}
		if !strings.Contains(string(makefile), "\n\t$(SUITE) "+p.group+"\n") {
			t.Errorf("%s: the Makefile has no target for its group %s", p.name, p.group)
		}
	}
	if !strings.Contains(string(makefile), "\n\t$(SUITE) -gate\n") {
		t.Error("make test does not run the gate")
	}
}

// TestSelectParts checks which parts the flags and the groups select.
func TestSelectParts(t *testing.T) {
	some := []part{{name: "a", group: "unit", gate: true}, {name: "b", group: "unit"},
		{name: "c", group: "soak", gate: true}}
	for _, tc := range []struct {
		gate   bool
		groups []string
		want   string
		err    string
	}{
		{want: "abc"},
		{gate: true, want: "ac"},
		{groups: []string{"unit"}, want: "ab"},
		{gate: true, groups: []string{"unit"}, want: "a"},
		{groups: []string{"soak", "unit"}, want: "abc"},
		{groups: []string{"unti"}, err: "cannot run group unti: give one of soak, unit"},
	} {
		parts, err := selectParts(some, tc.gate, tc.groups)
		var got string
		for _, p := range parts {
			got += p.name
		}
		if got != tc.want || errorText(err) != tc.err {
			t.Errorf("gate %v, groups %q: got %q and %v", tc.gate, tc.groups, got, err)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
