package planning_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"regexp"
	"sync"
	"testing"

	"github.com/bringupd/bringupd/pkg/daemon/planning"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/users"
)

// TestTakeGrants checks that a daemon of a further step takes ports over without a moment in which
// another process could have them, and that no other user can.
func TestTakeGrants(t *testing.T) {
	users.Need(t)
	place := signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "k", Size: 2, Host: "n0"}
	dir, err := signal.CreateRun(t.Context(), place, record.Job{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	background := func(task func(ctx context.Context)) { tasks.Go(func() { task(ctx) }) }
	free, err := process.FindFreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	granted, other, released := free[0], free[1], free[2]
	isFree := func(port int) bool {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = listener.Close()
		}
		return err == nil
	}
	main, step := planning.NewPortBlock(background), planning.NewPortBlock(background)
	main.Keep(free...)
	if err := main.ServeGrants(background, dir, 1); err != nil {
		t.Fatal(err)
	}
	sockets, err := os.ReadFile("/proc/net/unix") // which all users can read
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile("@bringupd-grants-[0-9a-f]+").FindString(string(sockets))
	users.Stranger.Do(t, func() {
		conn, err := net.Dial("unixpacket", address)
		if err != nil {
			t.Errorf("cannot ask as another user: %v", err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = fmt.Fprint(conn, granted)
		if length, err := conn.Read(make([]byte, 100)); err == nil && length > 0 {
			t.Error("another user has an answer")
		}
	})
	if isFree(granted) || isFree(other) {
		t.Error("another user has taken the ports")
	}
	// The port is tried all the time.
	tries, stop := context.WithCancel(ctx)
	var tried sync.WaitGroup
	tried.Go(func() {
		for tries.Err() == nil {
			if isFree(granted) {
				t.Error("the port was free")
				return
			}
		}
	})
	if err := step.TakeGrants(t.Context(), dir, 1, []int{granted}); err != nil {
		t.Fatal(err)
	}
	// The daemon that has granted a port does not hold it any more.
	if err := step.TakeGrants(t.Context(), dir, 1, []int{released}); err != nil {
		t.Fatal(err)
	}
	main.Release() // waits until the grant is over
	if step.Release(released); !isFree(released) {
		t.Error("a port that was granted is not free after its release")
	}
	main.KeepOnly()
	main.Keep(granted) // too late: it belongs to the step
	stop()
	tried.Wait()
	if isFree(granted) || !isFree(other) {
		t.Errorf("the granted port is free: %v; the other one: %v", isFree(granted), isFree(other))
	}
	step.Release(granted)
	main.Keep(granted) // a process of the step is about to have it
	if !isFree(granted) {
		t.Error("the port is not free after its release")
	}
	if err := step.TakeGrants(t.Context(), dir, 0, []int{granted}); err == nil {
		t.Error("another node has granted a port")
	}
}
