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

// Build builds the program into a folder. If race is set, it uses the race detector.
func Build(ctx context.Context, dir string, race bool) (Program, error) {
	p := Program{filepath.Join(dir, "hostile")}
	build := exec.CommandContext(ctx, "go", "build",
		"-race="+strconv.FormatBool(race), "-o", p.path,
		"github.com/bringupd/bringupd/test/cmd/hostile")
	if out, err := build.CombinedOutput(); err != nil {
		return p, fmt.Errorf("cannot build the file system of the tests: %v: %s", err, out)
	}
	return p, nil
}

const (
	// turnTime limits the time of a change of knobs. It is far longer than any change takes.
	turnTime = 60 * time.Second
	// closeTime is how long the server has to end by itself before it is killed.
	closeTime = 10 * time.Second
)

// Mount is a mount and the process that serves it.
type Mount struct {
	at     string
	server *exec.Cmd
	out    *os.File // the server's standard output
	stderr bytes.Buffer
	closed func() error // closes the mount; only the first call has an effect

	in io.WriteCloser // closing it ends the server

	mu      sync.Mutex
	answers *bufio.Reader // guarded by mu
	knobs   Knobs         // guarded by mu
	taken   int           // as last reported by the server; guarded by mu
}

// Mount mounts the folder from at the folder at, with the given knobs. Both folders must exist. The
// caller must call Close. Mount gives up when ctx ends.
func (p Program) Mount(ctx context.Context, from, at string, knobs Knobs) (*Mount, error) {
	if err := knobs.check(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // the server may answer before the deadline of the pipe is set
		return nil, fmt.Errorf("cannot mount %s at %s: %w", from, at, context.Cause(ctx))
	}
	set, err := json.Marshal(knobs)
	if err != nil {
		return nil, err
	}
	m := &Mount{at: at, knobs: knobs}
	m.closed = sync.OnceValue(m.close)
	m.server = exec.Command(p.path, "-from", from, "-at", at, "-knobs", string(set))
	m.server.Stderr = &m.stderr
	// By default the race detector makes every process sleep before it exits.
	m.server.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	// An interrupt from the keyboard must end only the tests: the server notices their end, and
	// unmounts.
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

// heard reads one answer of the server. The caller holds mu or is the only user.
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

// At returns the mount point.
func (m *Mount) At() string { return m.at }

// Pid returns the process id of the mount's server.
func (m *Mount) Pid() int { return m.server.Process.Pid }

// Knobs returns the current knobs.
func (m *Mount) Knobs() Knobs {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.knobs
}

// Set changes the knobs: they apply to every call that begins after its return. The kernel keeps
// what it has cached before.
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

// Taken returns the number of calls that the server has taken and not answered. During a Held
// stall, these are the calls that cannot be interrupted.
func (m *Mount) Taken() (int, error) {
	err := m.change(func(*Knobs) {})
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.taken, err
}

// StallKind is a way in which a mount stops answering.
type StallKind string

// The kinds of stalls.
const (
	// Unread stalls take no call. A process that waits for a call can be killed, as on a network file
	// system that is mounted "hard" and whose server is gone.
	Unread StallKind = "unread"
	// Held stalls take every call and answer none. A process that waits for a call cannot be ended: if
	// it is killed, it stays until the release.
	Held StallKind = "held"
)

// Stall stops the answers to all calls that begin after its return, until Release. All calls that
// began before have been answered.
func (m *Mount) Stall(kind StallKind) error {
	return m.change(func(k *Knobs) { k.Unread, k.Held = kind == Unread, kind == Held })
}

// Release ends a stall. The waiting calls are then executed.
func (m *Mount) Release() error {
	return m.change(func(k *Knobs) { k.Unread, k.Held = false, false })
}

// Close unmounts and ends the server, whatever state they are in, and returns when both are gone.
// Processes that still use the mount receive errors. Further calls return the result of the first
// one.
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
		return errors.Join(fmt.Errorf("the server of %s: %v: %s", m.at, err, m.stderr.Bytes()),
			m.leftover())
	}
	return m.leftover()
}

// leftover unmounts if the server has not done it.
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

// abort makes the kernel abort a mount's connection, if possible.
func abort(at string) {
	if number, there := connection(at); there {
		_ = os.WriteFile("/sys/fs/fuse/connections/"+number+"/abort", []byte("1"), 0)
	}
}

// connection returns the kernel's number of the connection that is mounted at a folder. It does not
// access the folder, which may not respond.
func connection(at string) (number string, there bool) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(mounts)) {
		// The format is "ID PARENT MAJOR:MINOR ROOT AT …".
		fields := strings.Fields(line)
		if len(fields) > 4 && fields[4] == at {
			_, number, there = strings.Cut(fields[2], ":")
		}
	}
	return number, there
}
