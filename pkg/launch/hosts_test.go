package launch_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/launch"
)

// TestSSH verifies that the user's own options precede, and that what failed is named.
func TestSSH(t *testing.T) {
	ssh := launch.SSH{Command: "ssh -o ConnectTimeout=3", Program: "/my bin/bringupd"}
	argv := ssh.Argv("me@b", "hosts-daemon")
	own, other := slices.Index(argv, "ConnectTimeout=3"), slices.Index(argv, "ConnectTimeout=10")
	if own < 0 || own > other || !slices.Equal(argv[len(argv)-2:],
		[]string{"me@b", "exec '/my bin/bringupd' hosts-daemon"}) {
		t.Errorf("it runs %q", argv)
	}
	for code, part := range map[int]string{127: "/my bin/bringupd", 255: " -o BatchMode=yes me@b true"} {
		if got := ssh.ExplainExit(code, "me@b", "why"); !strings.HasPrefix(got, "cannot ") ||
			!strings.Contains(got, part) || !strings.Contains(got, "why") {
			t.Errorf("%d: %s", code, got)
		}
	}
}
