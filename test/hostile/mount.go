package hostile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Program is the built program that serves a mount.
type Program struct{ path string }

// Build builds the program into a folder, with the race detector if so wished.
func Build(ctx context.Context, dir string, race bool) (Program, error) {
	p := Program{filepath.Join(dir, "hostile")}
	build := exec.CommandContext(ctx, "go", "build", "-race="+strconv.FormatBool(race), "-o", p.path,
		"github.com/bringupd/bringupd/test/cmd/hostile")
	if out, err := build.CombinedOutput(); err != nil {
		return p, fmt.Errorf("cannot build the file system of the tests: %v: %s", err, out)
	}
	return p, nil
}

const (
	// turnTime bounds the turning of knobs: far above what any takes.
	turnTime = 60 * time.Second
	// closeTime is what the server has to end by itself, before it is killed.
	closeTime = 10 * time.Second
)

// Mount is a mount and the process that serves it.
type Mount struct {
	at     string
	server *exec.Cmd
	out    *os.File // what it says
	stderr bytes.Buffer
	closed func() error // closes it once

	in io.WriteCloser // ends the server where it is closed

	mu      sync.Mutex
	answers *bufio.Reader // guarded by mu
	knobs   Knobs         // guarded by mu
	taken   int           // as the server said last, guarded by mu
}

// Mount shows the folder from at the folder at, with those knobs; both must be
// there. Close must be called. It gives up when ctx ends.
func (p Program) Mount(ctx context.Context, from, at string, knobs Knobs) (*Mount, error) {
	if err := knobs.check(); err != nil {
		return nil, err
	}
	set, err := json.Marshal(knobs)
	if err != nil {
		return nil, err
	}
	m := &Mount{at: at, knobs: knobs}
	m.closed = sync.OnceValue(m.close)
	m.server = exec.Command(p.path, "-from", from, "-at", at, "-knobs", string(set))
	m.server.Stderr = &m.stderr
	// By itself the race detector has every process sleep before its end.
	m.server.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	// What ends the tests from the keyboard is not to end the server: it sees
	// that they have ended, and takes the mount away.
	m.server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if m.in, err = m.server.StdinPipe(); err != nil {
		return nil, err
	}
	said, err := m.server.StdoutPipe()
	if err != nil {
		return nil, err
	}
	m.out = said.(*os.File)
	m.answers = bufio.NewReader(m.out)
	if err := m.server.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the server of %s: %v", at, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = m.out.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := m.heard(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot mount %s at %s: %v", from, at, err), m.Close())
	}
	return m, nil
}

// heard reads one answer of the server's. The caller holds mu, or is alone.
func (m *Mount) heard() error {
	line, err := m.answers.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("its server says nothing: %v", err)
	}
	var said answer
	if err := json.Unmarshal(line, &said); err != nil {
		return fmt.Errorf("its server says %q: %v", line, err)
	}
	m.taken = said.Taken
	if said.Error != "" {
		return errors.New(said.Error)
	}
	return nil
}

// At returns the folder at which the mount is.
func (m *Mount) At() string { return m.at }

// Pid returns the process id of the mount's server.
func (m *Mount) Pid() int { return m.server.Process.Pid }

// Knobs returns those in force.
func (m *Mount) Knobs() Knobs {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.knobs
}

// Set turns the knobs: every call that begins after its return meets the new
// ones. What the kernel was told to remember before, it goes on remembering.
func (m *Mount) Set(knobs Knobs) error {
	return m.change(func(k *Knobs) { *k = knobs })
}

func (m *Mount) change(how func(*Knobs)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	knobs := m.knobs
	how(&knobs)
	if err := knobs.check(); err != nil {
		return err
	}
	if err := m.out.SetReadDeadline(time.Now().Add(turnTime)); err != nil {
		return fmt.Errorf("cannot turn the knobs of %s: %v", m.at, err)
	}
	err := json.NewEncoder(m.in).Encode(knobs)
	if err == nil {
		err = m.heard()
	}
	if err != nil {
		return fmt.Errorf("cannot turn the knobs of %s: %v", m.at, err)
	}
	m.knobs = knobs
	return nil
}

// Taken returns how many calls the server has taken and not answered. During a
// Held stall, those are what nothing ends.
func (m *Mount) Taken() (int, error) {
	err := m.change(func(*Knobs) {})
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.taken, err
}

// StallKind is a way for a mount to answer nothing.
type StallKind string

// The kinds of stalls.
const (
	// Unread stalls take no call. Who waits for one can be killed, as on a
	// network file system that is mounted "hard" and whose server is gone.
	Unread StallKind = "unread"
	// Held stalls take every call and answer none. Nothing ends who waits for
	// one: a process that is killed stays until the release.
	Held StallKind = "held"
)

// Stall has the mount answer no call that begins after its return, until
// Release. All that have begun before have been answered.
func (m *Mount) Stall(kind StallKind) error {
	return m.change(func(k *Knobs) { k.Unread, k.Held = kind == Unread, kind == Held })
}

// Release ends a stall: the calls that wait are made.
func (m *Mount) Release() error {
	return m.change(func(k *Knobs) { k.Unread, k.Held = false, false })
}

// Close takes the mount away and ends its server, whatever state they are in,
// and returns when both are gone. Who still uses the mount gets errors. A
// further call returns what the first one did.
func (m *Mount) Close() error { return m.closed() }

func (m *Mount) close() error {
	_ = m.in.Close()
	late := time.AfterFunc(closeTime, func() {
		_ = m.server.Process.Kill()
		_ = unix.Unmount(m.at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		abort(m.at)
	})
	defer late.Stop()
	if err := m.server.Wait(); err != nil && m.stderr.Len() > 0 {
		return errors.Join(fmt.Errorf("the server of %s: %v: %s", m.at, err, m.stderr.Bytes()), m.leftover())
	}
	return m.leftover()
}

// leftover takes away what the server has not.
func (m *Mount) leftover() error {
	if _, there := connection(m.at); !there {
		return nil
	}
	abort(m.at)
	if err := unix.Unmount(m.at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("cannot take away the mount at %s: %v", m.at, err)
	}
	return nil
}

// abort has the kernel give up a mount, where it lets itself be told.
func abort(at string) {
	if number, there := connection(at); there {
		_ = os.WriteFile("/sys/fs/fuse/connections/"+number+"/abort", []byte("1"), 0)
	}
}

// connection returns the kernel's number of what is mounted at a folder, which
// must not be asked: it may not answer.
func connection(at string) (number string, there bool) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(mounts)) {
		// ID PARENT MAJOR:MINOR ROOT AT …
		fields := strings.Fields(line)
		if len(fields) > 4 && fields[4] == at {
			_, number, there = strings.Cut(fields[2], ":")
		}
	}
	return number, there
}
