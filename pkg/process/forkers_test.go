package process

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestForkersKeepTheirThreads verifies that a child survives the end of other threads. The kernel
// sends the parent-death signal when the thread that forked ends; here all threads end that the
// runtime may end.
func TestForkersKeepTheirThreads(t *testing.T) {
	f := newForkThreads()
	defer f.wg.Wait()
	defer f.shutDown()
	// The goroutines run concurrently and inside a system call, so that each has a thread of its own.
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	var tids []int
	ran := make(chan int)
	for range 20 {
		f.runJob(func() {
			ran <- unix.Gettid()
			unix.Read(pipe[0], make([]byte, 1))
			ran <- 0
		})
		tids = append(tids, <-ran)
	}
	unix.Close(pipe[1])
	for range 20 {
		<-ran
	}
	var locked sync.WaitGroup
	gate := make(chan struct{})
	for range 100 {
		locked.Add(1)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			locked.Done()
			<-gate
		}()
	}
	locked.Wait()
	before := threads(t)
	close(gate)
	until(t, "end of threads", func() (bool, any) { now := threads(t); return now < before-80, []int{before, now} })
	for _, tid := range tids {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); err != nil {
			t.Errorf("a thread that forked has ended: %v", err)
		}
	}
}

func threads(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
