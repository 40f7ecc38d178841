package testbed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// root contains a folder for each running testbed. It is not below /tmp, which is private to each
// node, nor below /run, which many hosts mount with noexec.
const root = "/var/lib/bringupd-testbed"

const (
	maxSlots = 100
	maxNodes = 200
)

// slot is a number reserved for a testbed. The testbed's folder, subnet and link on the host derive
// from it.
type slot struct {
	number int
	dir    string
	tag    string // unique among all testbeds ever: "testbed-<number>-<owner's pid>-<start>"
	// held while the owner lives; the kernel releases it however the owner ends
	lock *os.File
}

// claimSlot reserves the lowest free number whose subnet is free on this host, and creates its
// folder.
func claimSlot() (*slot, error) {
	unlock, err := lockRoot()
	if err != nil {
		return nil, err
	}
	defer unlock()
	for number := 1; number <= maxSlots; number++ {
		s := &slot{number: number, dir: filepath.Join(root, strconv.Itoa(number))}
		taken, err := s.subnetTaken()
		if err != nil {
			return nil, err
		}
		if taken {
			continue
		}
		if err := os.Mkdir(s.dir, 0o755); errors.Is(err, os.ErrExist) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("cannot make the folder of a testbed: %v", err)
		}
		if err := s.fill(); err != nil {
			return nil, errors.Join(err, os.RemoveAll(s.dir))
		}
		return s, nil
	}
	return nil, fmt.Errorf("cannot start a testbed: all %d places below %s are taken",
		maxSlots, root)
}

// fill locks a new slot and creates the folders in it.
func (s *slot) fill() error {
	lock, err := os.OpenFile(s.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("cannot make the lock of a testbed: %v", err)
	}
	s.lock = lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("cannot lock %s: %v", lock.Name(), err)
	}
	info, err := lock.Stat()
	if err != nil {
		return fmt.Errorf("cannot read the lock of a testbed: %v", err)
	}
	s.tag = fmt.Sprintf("testbed-%d-%d-%d", s.number, os.Getpid(), info.ModTime().UnixNano())
	if err := os.WriteFile(s.path("tag"), []byte(s.tag+"\n"), 0o644); err != nil {
		return fmt.Errorf("cannot write the tag of a testbed: %v", err)
	}
	for _, name := range []string{"share", "bin", "log", "state", "spool", "pid", "place", "etc"} {
		if err := os.Mkdir(s.path(name), 0o755); err != nil {
			return fmt.Errorf("cannot make a folder of a testbed: %v", err)
		}
	}
	return nil
}

// release removes the slot's link, mount and folder, and releases its lock. The caller holds the
// lock of root.
func (s *slot) release() error {
	err := errors.Join(s.deleteLink(), s.unmount())
	if err == nil {
		err = os.RemoveAll(s.dir)
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

// deleteLink removes the host's link to the testbed, which would otherwise disappear a moment after
// the last process of ctl.
func (s *slot) deleteLink() error {
	out, err := exec.Command("ip", "link", "delete", s.link()).CombinedOutput()
	if _, gone := net.InterfaceByName(s.link()); gone != nil {
		return nil
	}
	return fmt.Errorf("cannot delete the link %s: %v: %s", s.link(), err,
		strings.TrimSpace(string(out)))
}

// unmount removes the share's mount from the host, if there is one. Its server may have ended
// already.
func (s *slot) unmount() error {
	err := unix.Unmount(s.path("share"), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil // EINVAL: nothing is mounted there
	}
	return fmt.Errorf("cannot take the share %s off the host: %v", s.path("share"), err)
}

func (s *slot) path(name string) string { return filepath.Join(s.dir, name) }

// marker is the source of a small mount in each place of the testbed. It identifies the owner of a
// process in /proc/PID/mountinfo, even if the process was renamed or has another parent.
func (s *slot) marker(place string) string { return s.tag + "-" + place }

// link returns the name of the host's end of the link to the testbed.
func (s *slot) link() string { return fmt.Sprintf("testbed%d", s.number) }

func (s *slot) prefix() netip.Prefix { return netip.PrefixFrom(s.address(0, 0), 16) }

func (s *slot) address(third, fourth int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(100 + s.number), byte(third), byte(fourth)})
}

func (s *slot) ctlAddress() string       { return s.address(0, 1).String() }
func (s *slot) hostAddress() string      { return s.address(0, 2).String() }
func (s *slot) nodeAddress(i int) string { return s.address(1, i+1).String() }

// subnetTaken reports whether an interface of this host has an address in the slot's subnet.
func (s *slot) subnetTaken() (bool, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return false, fmt.Errorf("cannot list the addresses of this host: %v", err)
	}
	for _, address := range addresses {
		prefix, err := netip.ParsePrefix(address.String())
		if err == nil && prefix.Overlaps(s.prefix()) {
			return true, nil
		}
	}
	return false, nil
}

// lockRoot serialises the creation and removal of slots among all processes of this host.
func lockRoot() (unlock func(), err error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the folder of all testbeds: %v", err)
	}
	lock, err := os.OpenFile(filepath.Join(root, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the lock of all testbeds: %v", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot lock %s: %v", lock.Name(), err), lock.Close())
	}
	return func() { _ = lock.Close() }, nil
}
