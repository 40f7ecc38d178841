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

// Order is what a daemon on another machine is told. It goes over ssh's standard input, in one line, and not by a
// command line, which anyone there could read, and which a shell would read once more.
type Order struct {
	Program string   // the version that the launcher is
	Args    []string // the daemon's own, and its driver's
	Dir     string   // where to begin
	Env     []string // NAME=VALUE
	Mark    string   // what to say once this is understood
}

// Words of a daemon for its launcher, which stand on a line of standard error behind the order's mark.
const (
	begun = " begun"
	// ended255 tells the code 255 from that of an ssh which has failed.
	ended255 = " ended 255"
)

// failed begins a line for a daemon that is no signal's name, and is followed by why the launch has failed: see
// health.LaunchFailed.
const (
	failed    = "FAILED "
	maxFailed = 500 // characters of such a line
)

// maxOrder bounds an order in bytes.
const maxOrder = 16 << 20

// Tether is the launcher's side of the connection to one daemon: what it says there, and how its standard error is
// heard. While it is held the daemon goes on; its end is a TERM.
type Tether struct {
	mark  string
	to    *os.File
	lines chan string
	done  sync.WaitGroup

	err      io.Writer
	mu       sync.Mutex
	held     []byte // the beginning of a line that may be for us
	inLine   bool   // the rest of a line that is not
	begun    bool
	ended    bool
	stopOnce sync.Once
}

// NewTether returns a Tether that gives an order at once, and the end of it that is the daemon's standard input, which
// the caller closes. What is not for the launcher of the daemon's standard error goes on to stderr.
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
				return // there is no ssh any more, which is told by its end
			}
		}
	})
	return t, stdin, nil
}

// Signal has the daemon get a signal. Where the connection takes nothing any more, it is dropped.
func (t *Tether) Signal(sig syscall.Signal) { t.tell(unix.SignalName(sig)) }

// Fail tells the daemon why the launch has failed, as Signal does.
func (t *Tether) Fail(why string) { t.tell(failed + why) }

func (t *Tether) tell(word string) {
	select {
	case t.lines <- prose.Line(word, maxFailed):
	default:
	}
}

// Close lets go.
func (t *Tether) Close() {
	t.stopOnce.Do(func() {
		close(t.lines)
		_ = t.to.Close() // it also ends a write that nobody takes
		t.done.Wait()
	})
}

// Began tells whether the daemon has understood its order, and Failed255 whether a code of 255 is its own.
func (t *Tether) Began() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begun
}

// Failed255 tells whether a code of 255 is the daemon's own, and not ssh's.
func (t *Tether) Failed255() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// Write takes the daemon's standard error. Only what may be for the launcher is held back.
func (t *Tether) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []byte
	for _, c := range data {
		switch {
		case t.inLine:
			out = append(out, c)
			t.inLine = c != '\n'
		case c == '\n':
			if !t.heard(string(t.held)) {
				out = append(append(out, t.held...), c)
			}
			t.held = t.held[:0]
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

// isOurs tells whether what is held may become a line for the launcher.
func (t *Tether) isOurs() bool {
	return strings.HasPrefix(t.mark+begun, string(t.held)) || strings.HasPrefix(t.mark+ended255, string(t.held))
}

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

// Tethered is the daemon's side: it reads the order, and turns what follows into signals.
type Tethered struct {
	Order
	from *bufio.Reader
	err  io.Writer
}

// ReadOrder reads what the launcher tells.
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

// Begin says that the order is understood.
func (t *Tethered) Begin() { fmt.Fprintln(t.err, t.Mark+begun) }

// End says which code the daemon ends with, where that would be taken for ssh's.
func (t *Tethered) End(code int) {
	if code == 255 {
		fmt.Fprintln(t.err, "\n"+t.Mark+ended255)
	}
}

// Follow returns the signals of this process and those that the launcher sends, where health.LaunchFailed is one. When the launcher, or the way to it, is
// gone, that is a TERM. What reads its words can't be ended: it goes with the process.
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
