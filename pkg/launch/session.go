package launch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// DaemonSpec is the specification of a daemon on another machine. It is sent by ssh's standard
// input, as one line of JSON. A command line would be visible to all users of that machine, and
// would be parsed again by a shell.
type DaemonSpec struct {
	Program string   // the version of the launching program
	Args    []string // arguments of the daemon, and its driver's command
	Dir     string   // the working directory
	Env     []string // NAME=VALUE
	Mark    string   // prefix of the daemon's messages to the launcher
}

// Messages of a daemon to its launcher. Each is a line of standard error, after the order's mark.
const (
	startedMessage = " begun"
	// exit255Message means that the daemon's own exit code is 255, which ssh also uses if it fails.
	exit255Message = " ended 255"
)

var daemonMessages = []string{startedMessage, exit255Message}

// failurePrefix begins a line to a daemon with the reason why the launch has failed: see
// [health.LaunchFailureSignal]. All other lines are names of signals.
const (
	failurePrefix    = "FAILED "
	maxFailureLength = 500 // maximum length of such a line, in characters
)

// maxSpecSize is the maximum size of an order, in bytes.
const maxSpecSize = 16 << 20

// SSHSession is the launcher's side of the ssh connection to one daemon. It sends lines to the
// daemon's standard input, and reads its standard error. The daemon runs as long as the connection
// is open: it handles the end of the connection like a SIGTERM.
type SSHSession struct {
	Stdin  *os.File // of ssh
	mark   string
	stdin  *os.File // the other end
	lines  chan string
	writer sync.WaitGroup

	stderr       io.Writer
	mu           sync.Mutex
	heldText     []byte          // held back: the beginning of a line that may be a message to the launcher
	inOutputLine bool            // within a line that is not a message
	received     map[string]bool // messages of the daemon
	stopOnce     sync.Once
}

// NewSSHSession returns a session that the caller must close. The order is sent at once. The part of
// the daemon's standard error that is not for the launcher is forwarded to stderr.
func NewSSHSession(order DaemonSpec, stderr io.Writer) (*SSHSession, error) {
	line, err := json.Marshal(order)
	if err != nil {
		return nil, fmt.Errorf("cannot encode a daemon's settings: %v", err)
	}
	stdin, to, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make a pipe to ssh: %v", err)
	}
	t := &SSHSession{Stdin: stdin, mark: order.Mark, stdin: to, lines: make(chan string, 16), stderr: stderr,
		received: make(map[string]bool)}
	t.lines <- string(line)
	t.writer.Go(func() {
		for line := range t.lines {
			if _, err := io.WriteString(to, line+"\n"); err != nil {
				return // ssh has ended; the caller detects this by its exit
			}
		}
	})
	return t, nil
}

// SendSignal sends a signal to the daemon. It does not wait: if the connection accepts no more
// data, the signal is dropped.
func (t *SSHSession) SendSignal(sig syscall.Signal) { t.sendLine(unix.SignalName(sig)) }

// SendFailure sends the reason why the launch has failed to the daemon. Like
// [SSHSession.SendSignal], it does not wait.
func (t *SSHSession) SendFailure(why string) { t.sendLine(failurePrefix + why) }

// sendLine sends a line to the daemon, or drops it if the queue is full.
func (t *SSHSession) sendLine(word string) {
	select {
	case t.lines <- textutil.SingleLine(word, maxFailureLength):
	default:
	}
}

// Close closes both ends of the daemon's standard input.
func (t *SSHSession) Close() {
	t.stopOnce.Do(func() {
		_ = t.Stdin.Close()
		close(t.lines)
		_ = t.stdin.Close() // also ends a write that blocks
		t.writer.Wait()
	})
}

// HasStarted reports whether the daemon has accepted its order.
func (t *SSHSession) HasStarted() bool { return t.hasReceived(startedMessage) }

// HasExited255 reports whether an exit code of 255 is the daemon's own, and not ssh's.
func (t *SSHSession) HasExited255() bool { return t.hasReceived(exit255Message) }

func (t *SSHSession) hasReceived(message string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.received[message]
}

// Write handles the daemon's standard error: it consumes messages to the launcher, and forwards the
// rest. It holds back data only as long as it may be the beginning of a message.
func (t *SSHSession) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []byte
	for _, c := range data {
		switch {
		// The line is not a message.
		case t.inOutputLine:
			out = append(out, c)
			t.inOutputLine = c != '\n'
		// The line is complete.
		case c == '\n':
			message, is := strings.CutPrefix(string(t.heldText), t.mark)
			if is && slices.Contains(daemonMessages, message) {
				t.received[message] = true
			} else {
				out = append(append(out, t.heldText...), c)
			}
			t.heldText = t.heldText[:0]
		// The line may be a message, as long as it is the beginning of one.
		default:
			t.heldText = append(t.heldText, c)
			if !t.mayBeMessage() {
				out, t.heldText, t.inOutputLine = append(out, t.heldText...), t.heldText[:0], true
			}
		}
	}
	if len(out) > 0 {
		if _, err := t.stderr.Write(out); err != nil {
			return 0, err
		}
	}
	return len(data), nil
}

// mayBeMessage reports whether the held text may be the beginning of a message to the launcher.
func (t *SSHSession) mayBeMessage() bool {
	isBeginning := func(message string) bool { return strings.HasPrefix(t.mark+message, string(t.heldText)) }
	return slices.ContainsFunc(daemonMessages, isBeginning)
}

// LauncherSession is the daemon's side of the ssh connection. It reads the order, and converts the
// following lines to signals.
type LauncherSession struct {
	DaemonSpec
	stdin  *bufio.Reader
	stderr io.Writer
}

// ReadDaemonSpec reads the order from the launcher. Messages to the launcher are written to stderr.
func ReadDaemonSpec(from io.Reader, stderr io.Writer) (*LauncherSession, error) {
	t := &LauncherSession{stdin: bufio.NewReader(io.LimitReader(from, maxSpecSize)), stderr: stderr}
	line, err := t.stdin.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(bytes.TrimSpace(line), &t.DaemonSpec)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read this daemon's settings from standard input (%v): "+
			"only bringupd hosts starts this command", err)
	}
	return t, nil
}

// ApplyTo makes the directory and the environment of the specification those of this process, whose
// version is given. It returns a [*launcher.LaunchError] if the launching program has another version,
// or the directory does not exist here.
func (s DaemonSpec) ApplyTo(version string) error {
	host, _ := os.Hostname()
	if s.Program != version {
		return &launcher.LaunchError{
			Problem: fmt.Sprintf("cannot start on %s: bringupd is version %s there, and %s on "+
				"the launching host", host, version, s.Program),
			Fix: "install the same version on all hosts, or give --remote-program",
		}
	}
	if err := os.Chdir(s.Dir); err != nil {
		return &launcher.LaunchError{
			Problem: fmt.Sprintf("cannot start on %s in the directory of the launch: %v", host,
				err), Fix: "launch it from a directory that exists on all hosts",
		}
	}
	// The settings that count are those of the launcher.
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "BRINGUPD_") {
			_ = os.Unsetenv(name) // it fails only for an invalid name
		}
	}
	for _, entry := range s.Env {
		name, value, _ := strings.Cut(entry, "=")
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("cannot set %s: %v", name, err)
		}
	}
	return nil
}

// ReportStarted reports to the launcher that the order is accepted.
func (t *LauncherSession) ReportStarted() { fmt.Fprintln(t.stderr, t.Mark+startedMessage) }

// ReportExit reports the daemon's exit code to the launcher if it is 255, which could be mistaken
// for that of a failed ssh.
func (t *LauncherSession) ReportExit(code int) {
	if code == 255 {
		fmt.Fprintln(t.stderr, "\n"+t.Mark+exit255Message)
	}
}

// MergeSignals returns a channel with the signals of this process (own), and those that the
// launcher sends, including [health.LaunchFailureSignal]. When the launcher or the connection has
// gone, the channel receives a SIGTERM. The goroutine that reads the connection cannot be stopped;
// it ends with the process.
func (t *LauncherSession) MergeSignals(own <-chan os.Signal) <-chan os.Signal {
	all := make(chan os.Signal, 16)
	go func() {
		for sig := range own {
			all <- sig
		}
	}()
	go func() {
		for {
			line, err := t.stdin.ReadString('\n')
			word := strings.TrimSpace(line)
			if why, is := strings.CutPrefix(word, failurePrefix); is {
				all <- health.LaunchFailureSignal(why)
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
