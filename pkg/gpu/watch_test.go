package gpu

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// watchPID is the environment variable with the name of the file for the child's PID.
const watchPID = "GPU_TEST_WATCH_PID"

const (
	sayReady = `{"v":2,"watching":8}`
	sayXid79 = `{"v":2,"event":{"at":"2026-11-22T01:02:03Z","kind":"xid","xid":79,"gpu":3,"uuid":"GPU-3"}}`
	sayXid31 = `{"v":2,"event":{"at":"2026-11-22T01:02:03Z","kind":"xid","xid":31,"gpu":3,"uuid":"GPU-3"}}`
)

// watchChildren are the programs that the child may run.
var watchChildren = map[string]func() int{
	"tells": func() int {
		fmt.Println("libnvidia-ml: welcome")
		fmt.Println(sayReady)
		fmt.Println(sayXid31)
		fmt.Fprintln(os.Stderr, "a word beside")
		fmt.Println(`{"v":2,"heartbeat":true}`)
		fmt.Println(sayXid79)
		return untilUnheard()
	},
	"hangs": forever,
	"dies": func() int {
		fmt.Fprintln(os.Stderr, "bringupd: symbol lookup error: undefined symbol: nvmlEventSetCreate")
		return 127
	},
	"dies later": func() int {
		return again(sayXid31, func() int {
			fmt.Fprintln(os.Stderr, "the end")
			return 3
		})
	},
	"is killed": func() int {
		return again(sayXid31, func() int {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			return forever()
		})
	},
	"gives up": func() int {
		fmt.Println(`{"v":2,"end_reason":"the NVML library lacks nvmlEventSetCreate: the NVIDIA driver is too old"}`)
		return untilUnheard()
	},
	"gives up later": func() int { return again(`{"v":2,"end_reason":"all GPUs are lost"}`, untilUnheard) },
	"one endless line": func() int {
		for {
			if _, err := os.Stdout.WriteString(strings.Repeat("x", 1<<16)); err != nil {
				return 1
			}
		}
	},
	"floods": func() int {
		fmt.Println(sayReady)
		out := bufio.NewWriter(os.Stdout)
		for range 100_000 {
			fmt.Fprintln(out, sayXid31)
		}
		fmt.Fprintln(out, sayXid79)
		out.Flush()
		return untilUnheard()
	},
	"floods for ever": func() int {
		fmt.Println(sayReady)
		for {
			if _, err := fmt.Println(sayXid31); err != nil {
				return 1
			}
		}
	},
	"is silent": func() int { fmt.Println(sayReady); return untilUnheard() },
	"is deaf": func() int {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		fmt.Println(sayReady)
		return forever()
	},
}

// again is a watch that sends a message and ends. If it is asked to resume, it sends another event
// and continues to run.
func again(says string, end func() int) int {
	for questions := bufio.NewScanner(os.Stdin); questions.Scan(); {
		q, _ := decodeMessage(questions.Bytes())
		l, _ := decodeMessage([]byte(says))
		if q.Request == requestResume {
			l, _ = decodeMessage([]byte(sayXid79))
		}
		l.Number = q.Number
		_, _ = os.Stdout.Write(append(message{Number: q.Number, Watching: new(8)}.encodeLine(), l.encodeLine()...))
		if q.Request != requestResume && l.EndReason == "" {
			return end()
		}
	}
	return 0
}

func init() {
	for play, child := range watchChildren {
		helpers["a watch that "+play] = func() int {
			_ = os.WriteFile(os.Getenv(watchPID), []byte(strconv.Itoa(os.Getpid())), 0o600)
			return child()
		}
	}
}

func forever() int {
	for {
		time.Sleep(time.Hour) // a select would be a deadlock
	}
}

func untilUnheard() int {
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = os.WriteFile(os.Getenv(watchPID)+".bye", nil, 0o600)
	return 0
}

// watchOf returns a Child that runs one of these programs, and the file for its PID.
func watchOf(t *testing.T, play string) (w Child, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "pid")
	return Child{Env: helperEnv("a watch that "+play, watchPID+"="+file), Timeout: ceiling}, file
}

// checkGone fails if the child still runs. A killed child is reaped in the background, which may
// take a moment on a busy machine.
func checkGone(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); syscall.Kill(pid, 0) == nil; time.Sleep(time.Millisecond) {
		if time.Since(began) > ceiling {
			t.Fatalf("the child %d is still there", pid)
		}
	}
}

// ran contains the messages of a watch until its end, or until enough.
type ran struct {
	ready  int
	events []Event
	err    error
}

// startChild starts the child of a session, and waits until it has written its PID to the file. So the
// time that the machine needs for that does not count against the child's timeout.
func startChild(t *testing.T, session *Session, file string) {
	t.Helper()
	if _, err := session.ensureChild(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "PID of the child", func() bool {
		text, _ := os.ReadFile(file)
		return len(text) > 0
	})
}

// run runs a watch and ends it as soon as enough, which is called after each message, returns true.
func run(t *testing.T, w Child, file string, enough func(*ran) bool) (r ran) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ceiling)
	defer cancel()
	session := w.NewSession()
	if w.Timeout < ceiling {
		startChild(t, session, file)
	}
	r.ready = -1
	after := func() {
		if enough(&r) {
			cancel()
		}
	}
	r.err = session.Watch(ctx, func(n int) { r.ready = n; after() },
		func(e Event) { r.events = append(r.events, e); after() })
	_ = session.Close(context.WithoutCancel(ctx))
	if ctx.Err() == context.DeadlineExceeded {
		t.Error("nothing ended it")
	}
	return r
}

func never(*ran) bool { return false }

func TestWatchTells(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	w, file := watchOf(t, "tells")
	r := run(t, w, file, func(r *ran) bool {
		if len(r.events) > 0 && r.ready != 8 {
			t.Error("an event comes before it is ready")
		}
		return len(r.events) == 2
	})
	if r.err != nil || r.ready != 8 || len(r.events) != 2 || r.events[0].Xid != 31 ||
		r.events[1].Xid != 79 || r.events[1].UUID != "GPU-3" {
		t.Errorf("%+v", r)
	}
	checkGone(t, file)
	if _, err := os.Stat(file + ".bye"); err != nil {
		t.Errorf("the child was not let end by itself: %v", err)
	}
}

func TestWatchFails(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	for name, c := range map[string]struct {
		start  time.Duration
		ready  int
		events int
		says   []string
	}{
		"hangs":            {300 * time.Millisecond, -1, 0, []string{"no response", "300ms", "it may hang"}},
		"dies":             {0, -1, 0, []string{"exit code 127", "undefined symbol: nvmlEventSetCreate"}},
		"gives up":         {0, -1, 0, []string{"driver is too old"}},
		"one endless line": {300 * time.Millisecond, -1, 0, []string{"no response"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, file := watchOf(t, name)
			w.Timeout = cmp.Or(c.start, w.Timeout)
			r := run(t, w, file, never)
			if r.err == nil || r.ready != c.ready || len(r.events) != c.events {
				t.Fatalf("%+v", r)
			}
			for _, word := range append(c.says, "cannot watch the GPUs: ") {
				if !strings.Contains(r.err.Error(), word) {
					t.Errorf("%q does not say %q", r.err, word)
				}
			}
			if strings.Contains(r.err.Error(), "\x1b") {
				t.Errorf("%q is for terminals", r.err)
			}
			checkGone(t, file)
		})
	}
}

// TestWatchBeginsAgain verifies that a watch that has died or given up is restarted and asked for
// missed events.
func TestWatchBeginsAgain(t *testing.T) {
	for name, says := range map[string]string{
		"dies later": "exit code 3: the end", "is killed": "SIGKILL", "gives up later": "all GPUs are lost",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, file := watchOf(t, name)
			r := run(t, w, file, func(r *ran) bool { return len(r.events) > 0 && r.events[len(r.events)-1].Xid == 79 })
			if r.err != nil || r.ready != 8 || len(r.events) < 2 {
				t.Fatalf("%+v", r)
			}
			again := r.events[len(r.events)-2]
			if again.Kind != KindRestarted || again.GPU != -1 || !strings.Contains(again.Detail, says) {
				t.Errorf("%+v", again)
			}
			checkGone(t, file)
		})
	}
}

// TestWatchBearsAFlood verifies that a hundred thousand equal events are reported as one and do not
// hide another one.
func TestWatchBearsAFlood(t *testing.T) {
	w, file := watchOf(t, "floods")
	r := run(t, w, file, func(r *ran) bool { return len(r.events) > 0 && r.events[len(r.events)-1].Xid == 79 })
	if r.err != nil || len(r.events) < 2 || len(r.events) > 10 {
		t.Errorf("%+v", r)
	}
	checkGone(t, file)
}

func TestWatchEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	for _, play := range []string{"floods for ever", "is deaf", "is silent"} {
		t.Run(play, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			w, file := watchOf(t, play)
			if r := run(t, w, file, func(r *ran) bool { return r.ready == 8 }); r.err != nil {
				t.Errorf("%+v", r)
			}
			checkGone(t, file)
		})
	}
}

func TestWatchTellsOfSilence(t *testing.T) {
	w, file := watchOf(t, "is silent")
	w.SilenceTimeout = 50 * time.Millisecond
	r := run(t, w, file, func(r *ran) bool { return len(r.events) == 1 })
	if r.err != nil || len(r.events) != 1 || r.events[0].Kind != KindSilent ||
		r.events[0].GPU != -1 || r.events[0].At.IsZero() {
		t.Errorf("%+v", r)
	}
	checkGone(t, file)
}

func TestWatchIsOverBeforeItBegins(t *testing.T) {
	w, _ := watchOf(t, "tells")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	told := func(Event) { t.Error("told") }
	session := w.NewSession()
	if err := session.Watch(ctx, func(int) { t.Error("ready") }, told); err != nil {
		t.Error(err)
	}
	_ = session.Close(ctx)
}
