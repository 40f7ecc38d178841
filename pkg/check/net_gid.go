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

	"github.com/bringupd/bringupd/internal/envlist"
)

// maxGIDEntries is how many entries of a port's GID table are read. An address has two entries, for
// RoCE v1 and v2, and a port has few addresses. Tables have 128 entries and more.
const maxGIDEntries = 16

// readGID returns an entry of the port's GID table. The address is invalid if the entry is empty or
// beyond the end of the table. The kernel shows an empty entry as zero; older kernels return EINVAL
// (show_port_gid in drivers/infiniband/core/sysfs.c).
func (p rdmaPort) readGID(index int) (netip.Addr, error) {
	text, err := readTrimmed(p.path, "gids", strconv.Itoa(index))
	switch {
	case errors.Is(err, syscall.EINVAL):
		return netip.Addr{}, nil
	case errors.Is(err, fs.ErrNotExist): // not an error if the table exists
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

// routableGIDs returns the indices of the port's RoCE v2 GIDs with an IPv4 address, which NCCL
// prefers: "at 3 and 5", or "with none".
func (p rdmaPort) routableGIDs() (string, error) {
	var at []string
	for index := range maxGIDEntries {
		address, err := p.readGID(index)
		if err == nil && address.Is4In6() {
			var kind string
			kind, err = readTrimmed(p.path, "gid_attrs/types", strconv.Itoa(index))
			if kind == "RoCE v2" {
				at = append(at, strconv.Itoa(index))
			}
		}
		if err != nil && !errors.Is(err, syscall.EINVAL) { // EINVAL: the entry was removed since
			return "", err
		}
	}
	if len(at) == 0 {
		return "with none", nil
	}
	return "at " + strings.Join(at, " and "), nil
}

// gidAttributes returns the GID indices of the active Ethernet ports as an attribute. It returns
// nil if there are no such ports or if some could not be read.
func gidAttributes(ports []rdmaPort) []Attribute {
	var all []string
	for _, p := range ports {
		if !p.isEthernet() {
			continue
		}
		at, err := p.routableGIDs()
		if err != nil {
			return nil
		}
		all = append(all, at)
	}
	if len(all) == 0 {
		return nil
	}
	return []Attribute{{ID: AttrGIDs, Value: formatCounts(all, " ")}}
}

// checkGIDIndex warns if NCCL_IB_GID_INDEX selects an empty entry of the port's GID table. NCCL
// uses the index without checking it (ncclIbGetGidIndex in src/transport/net_ib). With a negative
// index or an invalid number, NCCL chooses an entry itself.
func (h *Host) checkGIDIndex(s *FindingBuilder, p rdmaPort) {
	text, _ := envlist.Lookup(h.Environ, "NCCL_IB_GID_INDEX")
	index, err := strconv.Atoi(text)
	if err != nil || index < 0 || p.requiredBy != "NCCL_IB_HCA" || !p.isEthernet() {
		return
	}
	switch address, err := p.readGID(index); {
	case err != nil:
		s.addUnreadable(err)
	case !address.IsValid():
		s.AddWarning(ClassUser, fmt.Sprintf("no GID at index %d", index),
			fmt.Sprintf("a GID there, because NCCL_IB_GID_INDEX=%d", index),
			"unset NCCL_IB_GID_INDEX (NCCL 2.21 and later choose it themselves), "+
				"or check that the port's interface has an address (show_gids)").Strict = true
	}
}
