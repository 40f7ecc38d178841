package check

import (
	"errors"
	"io/fs"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
)

// maxGIDEntries is how many entries of a port's GID table are read. An address has two entries, for
// RoCE v1 and v2, and a port has few addresses. Tables have 128 entries and more.
const maxGIDEntries = 16

// routableGIDs returns the indices of the port's RoCE v2 GIDs with an IPv4 address, which NCCL
// prefers: "at 3 and 5", or "with none". The kernel shows an empty entry as zero; older kernels
// return EINVAL (show_port_gid in drivers/infiniband/core/sysfs.c).
func (p rdmaPort) routableGIDs() (string, error) {
	var at []string
	for index := range maxGIDEntries {
		text, err := readTrimmed(p.path, "gids", strconv.Itoa(index))
		if errors.Is(err, fs.ErrNotExist) && index > 0 {
			break // the end of the table
		}
		var address netip.Addr
		if err == nil {
			address, err = netip.ParseAddr(text)
		}
		if address.Is4In6() {
			var kind string
			kind, err = readTrimmed(p.path, "gid_attrs/types", strconv.Itoa(index))
			if kind == "RoCE v2" {
				at = append(at, strconv.Itoa(index))
			}
		}
		if err != nil && !errors.Is(err, syscall.EINVAL) {
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
		if !p.isActive() || p.LinkLayer != "Ethernet" {
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
