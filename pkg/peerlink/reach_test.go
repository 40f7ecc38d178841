package peerlink

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// ending is a network whose connections fail as the job ends.
type ending struct{ end context.CancelFunc }

func (ending) Listen() (net.Listener, error) { return nil, errors.ErrUnsupported }

func (e ending) Dial(context.Context, string) (net.Conn, error) {
	conn, _ := newMemoryPair()
	return &endingConn{conn, e.end}, nil
}

type endingConn struct {
	*memoryConn
	end context.CancelFunc
}

func (c *endingConn) SetDeadline(time.Time) error {
	c.end()
	return net.ErrClosed
}

// TestReachAtTheEnd verifies the result of a call that fails at the moment of the job's end, when
// two causes abort it.
func TestReachAtTheEnd(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			if conn, took, err := (headDialer{network: ending{cancel}, key: testKey, node: 1}).dialAddress(ctx, "head:1"); conn != nil || !took || !errors.Is(err, net.ErrClosed) {
				t.Errorf("got %v, %t, %v", conn, took, err)
			}
			synctest.Wait()
		})
	}
}
