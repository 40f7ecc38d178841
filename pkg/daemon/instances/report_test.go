package instances

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// fullShare is a share on which no file can be made while it is full.
type fullShare struct {
	signal.SharedFS
	full *atomic.Bool
}

func (f fullShare) WriteFile(path string, data []byte, durable bool) error {
	if f.full.Load() {
		return syscall.ENOSPC
	}
	return f.SharedFS.WriteFile(path, data, durable)
}

// link makes the reports of a node reach the head as by a peer link.
func (r *run) link(node int) {
	r.nodes[node].Reports.Send = func(name string, content []byte) {
		if err := r.dir.AcceptReport(node, name, content); err != nil {
			r.t.Error(err)
		}
	}
}

// TestExitOnFullShare checks that the exit of a required instance ends the run at once while
// nothing can be written, and that its record appears when there is space again.
func TestExitOnFullShare(t *testing.T) {
	for name, child := range map[string]string{"on the head": "srv.0.0.g0", "on another node": "srv.1.0.g0"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, `
  - {name: srv, nodes: 2, command: serve}
  - {name: main, nodes: 1, primary: true, command: train}
`, func(r *run) {
				r.link(1)
				r.openGate()
				r.full.Store(true)
				r.exit(child, 3)
				time.Sleep(time.Second)
				if cause := r.cause(); cause == nil || cause.Child+".0.g0" != child {
					r.t.Errorf("the cause is %+v", cause)
				}
				time.Sleep(time.Minute)
				r.want("records on the full share", r.names(signal.NodesDir, "exited"))
				r.full.Store(false)
				time.Sleep(time.Minute)
				if written := r.names(signal.NodesDir, "exited"); len(written) != 1 {
					r.t.Errorf("the records are %q", written)
				}
			})
		})
	}
}

// TestRestartOnFullShare checks that an instance starts again and becomes ready while nothing can
// be written, and that its records appear later, without any effect.
func TestRestartOnFullShare(t *testing.T) {
	inBubble(t, 3, `
  - {name: srv, nodes: 2, command: serve, restarts: {max: 1}}
  - {name: main, nodes: 1, primary: true, command: train}
`, func(r *run) {
		r.link(1)
		r.openGate()
		r.full.Store(true)
		r.exit("srv.1.0.g0", 3)
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
		defer cancel()
		if err := r.head.AwaitGate(ctx); err != nil {
			r.t.Errorf("srv is not ready again: %v", err)
		}
		r.full.Store(false)
		time.Sleep(time.Minute)
		r.want("records", r.names(signal.NodesDir, "0001.i0001."), "0001.i0001.g0.exited", "0001.i0001.g0.ready", "0001.i0001.g1.ready")
		r.exit("srv.1.0.g1", 4) // the only restart is used up
		r.later()
		if cause := r.cause(); cause == nil || cause.Child != "srv.1" {
			r.t.Errorf("the cause is %+v", cause)
		}
	})
}
