package gpu

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"
)

// left are the children that had not ended when we last looked, after KILL.
// They are looked at again at each probe, so that none stays as a zombie that
// has ended after all. No goroutine waits for them: that would be one for each,
// with a thread, for as long as the node is up.
var left struct {
	sync.Mutex
	pids []int
}

// reapLeft takes the exits of those that have ended since.
func reapLeft() {
	left.Lock()
	defer left.Unlock()
	left.pids = slices.DeleteFunc(left.pids, func(pid int) bool {
		_, ended := tryReap(pid)
		return ended
	})
}

// kill ends a child, or leaves it where it can't be ended.
func kill(ctx context.Context, pid int) {
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	if _, ended := reap(context.WithoutCancel(ctx), pid, reapWait); ended {
		return
	}
	left.Lock()
	defer left.Unlock()
	left.pids = append(left.pids, pid)
}

// reap waits for a child's end for that long, or for the end of ctx. It asks
// again and again: a wait that blocks can't be given up. A child whose pipes
// have ended has ended too, a moment later.
func reap(ctx context.Context, pid int, limit time.Duration) (status syscall.WaitStatus, ended bool) {
	pause := 50 * time.Microsecond
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for end := time.Now().Add(limit); ; {
		if status, ended = tryReap(pid); ended {
			return status, true
		}
		if !time.Now().Before(end) {
			return status, false
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			return status, false
		}
		pause = min(2*pause, 20*time.Millisecond)
		timer.Reset(pause)
	}
}

func tryReap(pid int) (status syscall.WaitStatus, ended bool) {
	for {
		found, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		return status, found == pid || err != nil
	}
}
