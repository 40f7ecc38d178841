package testbed

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// killTimeout limits how long it may take to kill the processes of a testbed.
const killTimeout = 15 * time.Second

//go:embed watchdog.sh
var watchdogScript string

// startWatchdog starts a shell that outlives this process. If this process ends without Close, in
// whatever way, its end of the pipe closes, and the shell removes the testbed.
func (b *Bed) startWatchdog(context.Context) error {
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot make the watchdog's pipe: %v", err)
	}
	defer func() { _ = read.Close() }()
	s := b.slot
	cmd := exec.Command("sh", "-c", watchdogScript, "testbed-watchdog", root, s.dir,
		s.tag, s.link())
	cmd.Stdin = read
	// The shell has its own session, so that Ctrl-C at the terminal reaches only the owner.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	b.watchdog, err = startDaemon(cmd, s.path("log/watchdog.log"))
	if err != nil {
		return errors.Join(err, write.Close())
	}
	b.watchdog.stdin = write
	return nil
}

// Sweep removes the testbeds whose owners have died without calling Close. Start calls it.
func Sweep(ctx context.Context) error {
	unlock, err := lockRoot()
	if err != nil {
		return err
	}
	defer unlock()
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("cannot list the testbeds: %v", err)
	}
	var errs []error
	for _, entry := range entries {
		number, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		errs = append(errs,
			sweep(ctx, &slot{number: number, dir: filepath.Join(root, entry.Name())}))
	}
	return errors.Join(errs...)
}

// sweep removes one testbed if its lock is free. The caller holds the lock of root, without which
// no testbed may be created or removed.
func sweep(ctx context.Context, s *slot) error {
	lock, err := os.OpenFile(s.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open the lock of a testbed: %v", err)
	}
	s.lock = lock
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return lock.Close() // its owner is alive
	}
	tag, err := os.ReadFile(s.path("tag"))
	if err == nil {
		s.tag = strings.TrimSpace(string(tag))
		ctx, cancel := context.WithTimeoutCause(ctx, killTimeout,
			fmt.Errorf("the processes of the dead testbed %s do not die", s.dir))
		defer cancel()
		err = killAll(ctx, func() ([]Process, error) { return scan(s.tag, nil) })
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil // the owner died before it had started anything
	}
	return errors.Join(err, s.release())
}
