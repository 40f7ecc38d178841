package signal

import (
	"errors"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/twin"
)

// TestTwin verifies that daemons of the same run and node detect each other if both run on one
// host.
func TestTwin(t *testing.T) {
	for _, tc := range []struct {
		name string
		host string // of the second daemon
		pid  int
		twin bool
	}{
		{"it runs", "n0", twin.Start(t), true},
		{"it has ended", "n0", 1 << 30, false},
		{"on another host", "n1", twin.Start(t), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlace(t)
			d, err := CreateRun(within(t), p, record.Job{PID: tc.pid})
			must(t, err)
			must(t, d.PublishRecord(within(t), NodesDir, d.NodeName(0, record.StateJoined),
				&record.Joined{PID: tc.pid}, false))
			p.Host = tc.host
			begun, err := p.NewestAttempt(within(t))
			must(t, err)
			_, again := CreateRun(within(t), p, record.Job{})
			for what, err := range map[string]error{"joined": begun.CheckDuplicate(within(t)), "created": again} {
				var same *DuplicateDaemonError
				if errors.As(err, &same) != tc.twin {
					t.Errorf("%s: the error is %v", what, err)
				}
				if tc.twin && *same != (DuplicateDaemonError{Run: "123.0", Host: "n0", PID: tc.pid}) {
					t.Errorf("%s: the error is %+v", what, same)
				}
			}
		})
	}
}
