package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var errNotYet = errors.New("not yet")

// after returns a probe function that succeeds from the n-th call on; each call has the given
// duration.
func after(n int, takes time.Duration, times *[]time.Time) func(context.Context) error {
	return func(ctx context.Context) error {
		*times = append(*times, time.Now())
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return errors.New("cut short")
		}
		if len(*times) < n {
			return errNotYet
		}
		return nil
	}
}

func TestWaitReadyPace(t *testing.T) {
	for _, tc := range []struct {
		name        string
		takes       time.Duration
		first, last time.Duration // between the starts of attempts
	}{
		{name: "quick looks", first: 10 * time.Millisecond, last: 500 * time.Millisecond},
		{name: "looks of a second", takes: time.Second, first: 2 * time.Second, last: 2 * time.Second},
		{name: "looks of ten seconds", takes: 10 * time.Second, first: 12 * time.Second, last: 12 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var times []time.Time
				if err := WaitReady(t.Context(), after(20, tc.takes, &times), WaitOptions{}); err != nil {
					t.Fatal(err)
				}
				for i := range len(times) - 2 {
					if a, b := times[i+1].Sub(times[i]), times[i+2].Sub(times[i+1]); b < a || b > max(a*2, tc.first) {
						t.Errorf("pauses are %v, then %v", a, b)
					}
				}
				if got := times[1].Sub(times[0]); got != tc.first {
					t.Errorf("the first pause is %v", got)
				}
				if got := times[19].Sub(times[18]); got != tc.last {
					t.Errorf("the last pause is %v", got)
				}
			})
		})
	}
}

func TestWaitReadyDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("the deadline passed")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, cause)
		defer cancel()
		var times []time.Time
		start := time.Now()
		err := WaitReady(ctx, after(1000, 0, &times), WaitOptions{})
		if !errors.Is(err, cause) {
			t.Errorf("the cause is not in: %v", err)
		}
		mustSee(t, err, fmt.Sprintf("after 10s and %d attempts: the deadline passed; last seen: not yet", len(times)))
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestWaitReadyCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Second)
		defer cancel()
		looks := 0
		err := WaitReady(ctx, func(ctx context.Context) error {
			if looks++; looks == 1 {
				return errNotYet
			}
			<-ctx.Done()
			return errors.New("cut short")
		}, WaitOptions{})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		mustSee(t, err, "last seen: not yet")
	})
}

// TestWaitReadyLastSeen verifies that the error has the result of the newest try, with a deadline and
// without one.
func TestWaitReadyLastSeen(t *testing.T) {
	for _, isBounded := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, tries, died := t.Context(), 0, make(chan struct{})
			if isBounded {
				deadline, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				ctx = deadline
			}
			time.AfterFunc(time.Minute, func() { close(died) })
			err := WaitReady(ctx, func(context.Context) error {
				tries++
				return fmt.Errorf("result %d.", tries)
			}, WaitOptions{ChildExited: died})
			mustSee(t, err, fmt.Sprintf("last seen: result %d.", tries))
		})
	}
}

// TestWaitReadyMaxPause verifies that a service that wants to be tried more often is.
func TestWaitReadyMaxPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var times []time.Time
		options := WaitOptions{MaxPause: 50 * time.Millisecond}
		if err := WaitReady(t.Context(), after(20, 0, &times), options); err != nil {
			t.Fatal(err)
		}
		if got := times[19].Sub(times[18]); got != options.MaxPause {
			t.Errorf("the last pause is %v", got)
		}
	})
}

func TestWaitReadyDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		died := make(chan struct{})
		time.AfterFunc(3*time.Second, func() { close(died) })
		start := time.Now()
		err := WaitReady(t.Context(), func(ctx context.Context) error {
			<-ctx.Done() // an attempt that would last for ever
			return errNotYet
		}, WaitOptions{ChildExited: died})
		mustSee(t, err, "after 3s and 1 attempt: the process has ended")
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestWaitReadyDiedAnswering verifies that an answer from another process does not count if the
// child has just died.
func TestWaitReadyDiedAnswering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		died := make(chan struct{})
		err := WaitReady(t.Context(), func(ctx context.Context) error {
			if ctx.Err() == nil {
				close(died)
			}
			return nil
		}, WaitOptions{ChildExited: died})
		mustSee(t, err, "the process has ended")
	})
}

// TestListenElsewhere is not a test: the tests below start it as a process that listens.
func TestListenElsewhere(t *testing.T) {
	address := os.Getenv("HEALTH_TEST_LISTEN")
	if address == "" {
		return
	}
	network := "tcp"
	if strings.HasPrefix(address, "0.0.0.0:") {
		network = "tcp4" // otherwise it listens on all of IPv6, too
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	file := os.Getenv("HEALTH_TEST_FILE")
	if err := os.WriteFile(file, []byte(strconv.Itoa(portOf(l))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_ = os.WriteFile(file+".received", []byte(r.URL.String()), 0o600)
		}))
	}()
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test ends
}

// listener starts a process that listens, and returns its PID and its port.
func listener(t *testing.T, address string) (pid, port int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestListenElsewhere$")
	cmd.Env = os.Environ()
	return listenerBy(t, cmd, filepath.Join(t.TempDir(), "port"), address)
}

// listenerBy is like listener, but with a command that runs TestListenElsewhere and a file, owned
// by that command's user, for the port.
func listenerBy(t *testing.T, cmd *exec.Cmd, file, address string) (pid, port int) {
	t.Helper()
	cmd.Env = append(cmd.Env, "HEALTH_TEST_LISTEN="+address, "HEALTH_TEST_FILE="+file,
		"GORACE=atexit_sleep_ms=0") // otherwise a test binary with the race detector takes a second to end
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid, readPID(t, file)
}

func TestWaitReadyOwner(t *testing.T) {
	noLeaks(t)
	pid, port := listener(t, "127.0.0.1:0")
	look := parse(t, fmt.Sprintf("tcp:%d", port)).Try
	mine := WaitOptions{Ports: []int{port}, OwnsProcess: func(p int) bool { return p == pid }}
	if err := WaitReady(t.Context(), look, mine); err != nil {
		t.Errorf("the child's own port: %v", err)
	}
	stranger := WaitOptions{Ports: []int{port}, OwnsProcess: func(int) bool { return false }}
	err := WaitReady(t.Context(), look, stranger)
	mustSee(t, err, fmt.Sprintf("port %d of 127.0.0.1 is held by pid %d (", port, pid))
	if err := WaitReady(t.Context(), look, WaitOptions{}); err != nil {
		t.Errorf("with nobody asked for: %v", err)
	}
}
