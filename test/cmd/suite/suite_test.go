package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// have stands for test/setup.sh: a share can be had, and a browser can't.
const have = `have_share() { echo installed a share; }
have_browser() { echo "NOT RUN: no browser" >&2; return 1; }
`

func runParts(t *testing.T, ctx context.Context, strict bool, parts ...part) (said string, err error) {
	t.Helper()
	var out strings.Builder
	s := &suite{parts: parts, setup: have, stdout: &out, strict: strict}
	err = s.run(ctx)
	return out.String(), err
}

func TestEveryPartIsToldOf(t *testing.T) {
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
			said, err := runParts(t, t.Context(), tc.strict, tc.parts...)
			if got := errorText(err); got != tc.err {
				t.Errorf("the error is %q, not %q", got, tc.err)
			}
			_, table, _ := strings.Cut(said, "\npart ")
			for _, p := range tc.parts {
				if strings.Count(said, "== "+p.name+": ") != 1 || !strings.Contains(table, "\n"+p.name+" ") {
					t.Errorf("%s is not told of once, and in the table:\n%s", p.name, said)
				}
			}
			if len(tc.parts) > 1 && !strings.Contains(table, "NOT RUN: no browser\n") {
				t.Errorf("the table does not tell why the page was not looked at:\n%s", said)
			}
			if strings.Contains(said, "six") || !strings.Contains(said, "seven\n") {
				t.Errorf("this was said:\n%s", said)
			}
		})
	}
}

// What parts that run side by side say is not mixed.
func TestOutputIsNotMixed(t *testing.T) {
	both := filepath.Join(t.TempDir(), "both")
	meet := func(own, other string) string {
		return "echo " + own + "1; touch " + both + own + "; until [ -e " + both + other + " ]; do sleep 0.01; done; echo " + own + "2; exit 1"
	}
	said, _ := runParts(t, t.Context(), false, part{name: "x", command: meet("a", "b")}, part{name: "y", lane: computes, command: meet("b", "a")})
	for _, want := range []string{"\na1\na2\n", "\nb1\nb2\n"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in:\n%s", want, said)
		}
	}
}

// An interrupt ends what parts have started, and counts as a failure.
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
	said, err := runParts(t, ctx, false, part{name: "long", command: "touch " + started + "; sleep 60; echo over"}, part{name: "next", command: "echo no"})
	if err == nil || strings.Contains(said, "over") || strings.Count(said, "NOT RUN: interrupted") != 4 {
		t.Errorf("the error is %v, and this was said:\n%s", err, said)
	}
}

// What the parts need is what test/setup.sh can install, and each group has a
// target of make.
func TestPartsAreWellFormed(t *testing.T) {
	setup, err := os.ReadFile("../../setup.sh")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		for _, name := range p.needs {
			if !strings.Contains(string(setup), "\nhave_"+name+"() {") {
				t.Errorf("%s: test/setup.sh has no have_%s", p.name, name)
			}
		}
		if !strings.Contains(string(makefile), "\n\t$(SUITE) "+p.group+"\n") {
			t.Errorf("%s: the Makefile has no target for its group %s", p.name, p.group)
		}
	}
}

func TestChoose(t *testing.T) {
	if _, err := choose(all, []string{"unti"}); err == nil || !strings.HasPrefix(err.Error(), "there is no group unti: there are cluster, lint, ") {
		t.Errorf("the error is %v", err)
	}
	if some, err := choose(all, []string{"share"}); err != nil || len(some) != 2 {
		t.Errorf("share has %d parts: %v", len(some), err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
