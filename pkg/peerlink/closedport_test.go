package peerlink

import (
	"context"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// answers is a network whose addresses answer each call in the same way.
type answers map[string]reaction

type reaction func(ctx context.Context) (net.Conn, error)

func (answers) Listen() (net.Listener, error) { return nil, syscall.ENOTSUP }

func (a answers) Dial(ctx context.Context, address string) (net.Conn, error) { return a[address](ctx) }

// refuses refuses a call. It and the following functions are the reactions to a call.
func refuses(context.Context) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
func away(context.Context) (net.Conn, error)    { return nil, syscall.EHOSTUNREACH }
func unknown(context.Context) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host"}}
}

func listens(context.Context) (net.Conn, error) {
	near, _ := newMemoryPair()
	return near, nil
}

func dark(ctx context.Context) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestIsHeadPortClosed verifies which answers of the addresses prove that the head has died.
func TestIsHeadPortClosed(t *testing.T) {
	for _, tc := range []struct {
		name          string
		first, second reaction
		want          bool
	}{
		{"refused", refuses, refuses, true},
		{"refused where it is known", refuses, unknown, true},
		{"known nowhere", unknown, unknown, false},
		{"taken", listens, listens, false},
		{"taken at one", refuses, listens, false},
		{"no answer of one", dark, refuses, false},
		{"no way to one", away, refuses, false},
		{"no answer", dark, dark, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := answers{"first": tc.first, "second": tc.second}
				w := NewWorker(testConfig(), 1, network, []string{"first", "second"}, workerNews{newNews()}, well)
				began := time.Now()
				if got := w.IsHeadPortClosed(t.Context()); got != tc.want {
					t.Errorf("got %v", got)
				}
				if took := time.Since(began); took > refusalTimeout {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}
