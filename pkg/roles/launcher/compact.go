package launcher

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// numberedName is a host name, split at the last number of its first label: "gpu-a07.site" is
// "gpu-a", 7, ".site".
type numberedName struct {
	prefix, suffix string
	digits         string // empty if the name has no number
	number         uint64
}

// isLike reports whether two names differ at most in their numbers.
func (n numberedName) isLike(other numberedName) bool {
	return n.prefix == other.prefix && n.suffix == other.suffix && other.digits != ""
}

// CompactNodeList returns hosts, which may be unsorted and repeated, as a node list for
// ExpandNodeList: sorted, each host once, consecutive numbers as a range.
func CompactNodeList(hosts []string) string {
	names := make([]numberedName, 0, len(hosts))
	for _, host := range hosts {
		if host != "" {
			names = append(names, splitName(host))
		}
	}
	slices.SortFunc(names, func(a, b numberedName) int {
		return cmp.Or(cmp.Compare(a.prefix, b.prefix), cmp.Compare(a.suffix, b.suffix),
			cmp.Compare(a.number, b.number), cmp.Compare(len(a.digits), len(b.digits)))
	})
	names = slices.Compact(names)
	var parts []string
	for len(names) > 0 {
		alike := 1
		for alike < len(names) && names[alike].isLike(names[0]) {
			alike++
		}
		parts, names = append(parts, joinNames(names[:alike])), names[alike:]
	}
	return strings.Join(parts, ",")
}

// maxListBytes is the maximum total size in bytes of the host names in a record, which every node
// reads.
const maxListBytes = 128 << 10

// HostList returns the hosts of all nodes in order, in the shortest form that ExpandNodeList can
// read. It returns an empty string if a host is unknown, or if the list would be longer than 128
// KiB.
func HostList(hosts []string) string {
	list := CompactNodeList(hosts)
	if back, err := ExpandNodeList(list, len(hosts)); err != nil || !slices.Equal(back, hosts) {
		list = strings.Join(hosts, ",")
	}
	if len(list) > maxListBytes || slices.Contains(hosts, "") {
		return ""
	}
	return list
}

func splitName(host string) numberedName {
	label, _, _ := strings.Cut(host, ".")
	end := len(label)
	for end > 0 && !isDigit(label[end-1]) {
		end--
	}
	start := end
	for start > 0 && isDigit(label[start-1]) && end-start < maxNodeDigits {
		start--
	}
	number, err := strconv.ParseUint(host[start:end], 10, 64)
	if err != nil {
		return numberedName{prefix: host}
	}
	return numberedName{prefix: host[:start], suffix: host[end:], digits: host[start:end], number: number}
}

// joinNames writes names that differ only in their numbers.
func joinNames(names []numberedName) string {
	first := names[0]
	if len(names) == 1 {
		return first.prefix + first.digits + first.suffix
	}
	var ranges []string
	for len(names) > 0 {
		end := 1
		for end < len(names) && names[end].number == names[end-1].number+1 &&
			names[end].digits == padNumber(names[end].number, len(names[0].digits)) {
			end++
		}
		text := names[0].digits
		if end > 1 {
			text += "-" + names[end-1].digits
		}
		ranges, names = append(ranges, text), names[end:]
	}
	return first.prefix + "[" + strings.Join(ranges, ",") + "]" + first.suffix
}

func isDigit(c byte) bool {
	return c >= '0' && c <= '9'
}
