package check

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/bringupd/bringupd/pkg/process"
)

// mostGIDs is how many entries of a port's table of GIDs are read: an address has two, of RoCE v1 and v2, and a port has
// few addresses. Tables have 128 and more.
const mostGIDs = 16

// gid returns an entry of the port's table; not valid where it is empty, or the table ends before it. The kernel shows an
// empty one as zero, and the older ones refuse with EINVAL (show_port_gid in drivers/infiniband/core/sysfs.c).
func (p port) gid(index int) (netip.Addr, error) {
	text, err := readText(p.path, "gids", strconv.Itoa(index))
	switch {
	case errors.Is(err, syscall.EINVAL):
		return netip.Addr{}, nil
	case errors.Is(err, fs.ErrNotExist): // where there is a table at all
		_, err = os.Lstat(filepath.Join(p.path, "gids"))
		return netip.Addr{}, err
	case err != nil:
		return netip.Addr{}, err
	}
	address, err := netip.ParseAddr(text)
	if err != nil || address.IsUnspecified() {
		return netip.Addr{}, err
	}
	return address, nil
}

// routable tells at which indices the port has a GID of RoCE v2 with an IPv4 address, which is what NCCL prefers.
func (p port) routable() (string, error) {
	var at []string
	for index := range mostGIDs {
		address, err := p.gid(index)
		if err == nil && address.Is4In6() {
			var kind string
			kind, err = readText(p.path, "gid_attrs/types", strconv.Itoa(index))
			if kind == "RoCE v2" {
				at = append(at, strconv.Itoa(index))
			}
		}
		if err != nil && !errors.Is(err, syscall.EINVAL) { // an entry without a type was emptied since
			return "", err
		}
	}
	if len(at) == 0 {
		return "with none", nil
	}
	return "at " + strings.Join(at, " and "), nil
}

// gidTrait tells of the active Ethernet ports at which indices they have their GIDs; nothing where there are none, or
// where some could not be read.
func gidTrait(ports []port) []Trait {
	var all []string
	for _, p := range ports {
		if !p.active() || p.layer != "Ethernet" {
			continue
		}
		at, err := p.routable()
		if err != nil {
			return nil
		}
		all = append(all, at)
	}
	if len(all) == 0 {
		return nil
	}
	return []Trait{{ID: GIDs, Value: tally(all, " ")}}
}

// judgeGID tells where NCCL is to use an entry of the table that is empty: it takes the index as it is
// (ncclIbGetGidIndex in src/transport/net_ib). A negative one, and what is no number, leaves the choice to NCCL.
func (h *Host) judgeGID(s *Sheet, p port) {
	text, _ := process.LookupEnv(h.Environ, "NCCL_IB_GID_INDEX")
	index, err := strconv.Atoi(text)
	if err != nil || index < 0 || p.by != "NCCL_IB_HCA" || !p.active() || p.layer != "Ethernet" {
		return
	}
	switch address, err := p.gid(index); {
	case err != nil:
		s.unread(err)
	case !address.IsValid():
		s.Warn(User, fmt.Sprintf("it has no GID at index %d", index), fmt.Sprintf("one, for NCCL_IB_GID_INDEX=%d", index),
			"leave NCCL_IB_GID_INDEX out: since 2.21 NCCL finds it itself; or see whether the port's interface has an address: show_gids").Strict = true
	}
}
