package daemon

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
)

// examples returns the directory of the client.
func examples() string {
	path, _ := filepath.Abs("../../examples")
	return path
}

// inMeeting returns a line of shell that runs Python code in which each rank has joined its node's
// rendezvous.
func inMeeting(line string) string {
	return `PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=` + examples() + ` exec python3 -c '
import bringupd_kv, os
rank = int(os.environ["BRINGUPD_RANK"])
with bringupd_kv.Client() as meeting:
    ` + line + "'"
}

// TestRanksWithoutLinks verifies that ranks that exchange data are refused if a node has no peer
// link: the first that does so names what is missing, and the others end with the job.
func TestRanksWithoutLinks(t *testing.T) {
	t.Parallel()
	const put = `meeting.put("k", "v")`
	for _, tc := range []struct {
		name string
		mode config.LinkMode
		by   int // the rank that makes the request; its node ends the job
		asks string
		what string
	}{
		{"switched off", config.LinkOff, 0, put, "this run has no peer links"},
		{"not made, its own rank", config.LinkAuto, 1, put, "node 1 (n1) could not reach the head at "},
		{"not made, another's", config.LinkAuto, 0, "meeting.fence()",
			"node 1 did not establish a peer link to the head within 6s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			firewall := &network{Network: peerlink.TCP{}}
			firewall.refuses.Store(true)
			j := newRealWorld(t, 2, 1, onRank(1-tc.by, "exec sleep 300", inMeeting(tc.asks)))
			j.all(func(c *deps.Config) {
				c.Lifeline, c.Network = tc.mode, firewall
				c.Times.Peer = 6 * time.Second // a missing peer link is reported after this time
			})
			j.start().expect(everyone(65, 2)...)
			cause := j.blames(tc.by, health.Launch, 65)
			if !strings.Contains(cause.Message, tc.what) {
				t.Errorf("the cause is %q", cause.Message)
			}
		})
	}
}

// TestPythonIsToldWhy verifies that a Python program receives the reason why it waits in vain.
func TestPythonIsToldWhy(t *testing.T) {
	j := newRealWorld(t, 2, 1, `[ "$BRINGUPD_RANK" = 1 ] && exit 0; `+inMeeting(`
    try:
        meeting.fence()
    except bringupd_kv.MeetingError as e:
        print(e.late, e.gone, e)
    try:
        meeting.put("a b", "")
    except bringupd_kv.MeetingError as e:
        print(e.late, e.gone)`))
	j.start().expect(everyone(0, 2)...)
	if got := j.contents(j.out); !strings.HasPrefix(got,
		"False True cannot pass the fence fence: rank 1 on ") || !strings.HasSuffix(got, "\nFalse False\n") {
		t.Errorf("standard output is %q", got)
	}
}
