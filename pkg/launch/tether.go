package launch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Order is the specification of a daemon on another machine. It is sent by ssh's standard input, as
// one line of JSON. A command line would be visible to all users of that machine, and would be
// parsed again by a shell.
type Order struct {
	Program string   // the version of the launching program
	Args    []string // arguments of the daemon, and its driver's command
	Dir     string   // the working directory
	Env     []string // NAME=VALUE
	Mark    string   // prefix of the daemon's messages to the launcher
}

// Messages of a daemon to its launcher. Each is a line of standard error, after the order's mark.
const (
	begun = " begun"
	// ended255 means that the daemon's own exit code is 255, which ssh also uses if it fails.
	ended255 = " ended 255"
)

// failed begins a line to a daemon with the reason why the launch has failed: see
// [health.LaunchFailed]. All other lines are names of signals.
const (
	failed    = "FAILED "
	maxFailed = 500 // maximum length of such a line, in characters
)

// maxOrder is the maximum size of an order, in bytes.
const maxOrder = 16 << 20

// Tether is the launcher's side of the ssh connection to one daemon. It sends lines to the daemon's
// standard input, and reads its standard error. The daemon runs as long as the connection is open:
// it handles the end of the connection like a SIGTERM.
type Tether struct {
	mark  string
	to    *os.File
	lines chan string
	done  sync.WaitGroup

	err      io.Writer
	mu       sync.Mutex
	held     []byte // held back: the beginning of a line that may be a message to the launcher
	inLine   bool   // within a line that is not a message
	begun    bool
	ended    bool
	stopOnce sync.Once
}

// NewTether returns a [Tether], and the read end of the daemon's standard input, which the caller
// must close. The order is sent at once. The part of the daemon's standard error that is not for
// the launcher is forwarded to stderr.
func NewTether(order Order, stderr io.Writer) (t *Tether, stdin *os.File, err error) {
	line, err := json.Marshal(order)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot write down what a daemon is told: %v", err)
	}
	stdin, to, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a pipe to ssh: %v", err)
	}
	t = &Tether{mark: order.Mark, to: to, lines: make(chan string, 16), err: stderr}
	t.lines <- string(line)
	t.done.Go(func() {
		for line := range t.lines {
			if _, err := io.WriteString(to, line+"\n"); err != nil {
				return // ssh has ended; the caller detects this by its exit
			}
		}
	})
	return t, stdin, nil
}

// Signal sends a signal to the daemon. It does not wait: if the connection accepts no more data,
// the signal is dropped.
func (t *Tether) Signal(sig syscall.Signal) { t.tell(unix.SignalName(sig)) }

// Fail sends the reason why the launch has failed to the daemon. Like [Tether.Signal], it does not
// wait.
func (t *Tether) Fail(why string) { t.tell(failed + why) }

// tell sends a line to the daemon, or drops it if the queue is full.
func (t *Tether) tell(word string) {
	select {
	case t.lines <- prose.Line(word, maxFailed):
	default:
	}
}

// Close closes the daemon's standard input.
func (t *Tether) Close() {
	t.stopOnce.Do(func() {
		close(t.lines)
		_ = t.to.Close() // also ends a write that blocks
		t.done.Wait()
	})
}

// Began reports whether the daemon has accepted its order.
func (t *Tether) Began() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begun
}

// Failed255 reports whether an exit code of 255 is the daemon's own, and not ssh's.
func (t *Tether) Failed255() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// Write handles the daemon's standard error: it consumes messages to the launcher, and forwards the
// rest. It holds back data only as long as it may be the beginning of a message.
func (t *Tether) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []byte
	for _, c := range data {
		switch {
		// The line is not a message.
		case t.inLine:
			out = append(out, c)
			t.inLine = c != '\n'
		// The line is complete.
		case c == '\n':
			if !t.heard(string(t.held)) {
				out = append(append(out, t.held...), c)
			}
			t.held = t.held[:0]
		// The line may be a message, as long as it is the beginning of one.
		default:
			t.held = append(t.held, c)
			if !t.isOurs() {
				out, t.held, t.inLine = append(out, t.held...), t.held[:0], true
			}
		}
	}
	if len(out) > 0 {
		if _, err := t.err.Write(out); err != nil {
			return 0, err
		}
	}
	return len(data), nil
}

// isOurs reports whether the held text may be the beginning of a message to the launcher.
func (t *Tether) isOurs() bool {
	return strings.HasPrefix(t.mark+begun, string(t.held)) || strings.HasPrefix(t.mark+ended255, string(t.held))
}

// heard handles a line if it is a message to the launcher. Otherwise it returns false.
func (t *Tether) heard(line string) bool {
	switch line {
	case t.mark + begun:
		t.begun = true
	case t.mark + ended255:
		t.ended = true
	default:
		return false
	}
	return true
}

// Tethered is the daemon's side of the ssh connection. It reads the order, and converts the
// following lines to signals.
type Tethered struct {
	Order
	from *bufio.Reader
	err  io.Writer
}

// ReadOrder reads the order from the launcher. Messages to the launcher are written to stderr.
func ReadOrder(from io.Reader, stderr io.Writer) (*Tethered, error) {
	t := &Tethered{from: bufio.NewReader(io.LimitReader(from, maxOrder)), err: stderr}
	line, err := t.from.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(bytes.TrimSpace(line), &t.Order)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read what bringupd hosts tells this daemon on its standard input (%v): only it starts this command", err)
	}
	return t, nil
}

// Begin reports to the launcher that the order is accepted.
func (t *Tethered) Begin() { fmt.Fprintln(t.err, t.Mark+begun) }

// End reports the daemon's exit code to the launcher if it is 255, which could be mistaken for that
// of a failed ssh.
func (t *Tethered) End(code int) {
	if code == 255 {
		fmt.Fprintln(t.err, "\n"+t.Mark+ended255)
	}
}

// Follow returns a channel with the signals of this process (own), and those that the launcher
// sends, including [health.LaunchFailed]. When the launcher or the connection has gone, the channel
// receives a SIGTERM. The goroutine that reads the connection cannot be stopped; it ends with the
// process.
func (t *Tethered) Follow(own <-chan os.Signal) <-chan os.Signal {
	all := make(chan os.Signal, 16)
	go func() {
		for sig := range own {
			all <- sig
		}
	}()
	go func() {
		for {
			line, err := t.from.ReadString('\n')
			word := strings.TrimSpace(line)
			if why, is := strings.CutPrefix(word, failed); is {
				all <- health.LaunchFailed(why)
			} else if sig := unix.SignalNum(word); sig != 0 {
				all <- sig
			}
			if err != nil {
				all <- syscall.SIGTERM
				return
			}
		}
	}()
	return all
}
