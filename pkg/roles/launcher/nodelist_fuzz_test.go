package launcher

import (
	"runtime"
	"slices"
	"strings"
	"testing"
)

// allocated returns the number of bytes that the process allocates while f runs.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func FuzzExpandNodeList(f *testing.F) {
	f.Fuzz(func(t *testing.T, list string, some uint16) {
		limit := max(1, int(some))
		var names []string
		var err error
		took := allocated(func() { names, err = ExpandNodeList(list, limit) })
		// Each entry is matched, with memory that the race detector does not let a pool reuse. A name
		// consists of at most as many parts as it has bytes.
		most := uint64((64<<10)*(3+2*strings.Count(list, ",")) + 256*len(list))
		for _, name := range names {
			most += uint64(64 + 4*len(name)*len(name))
		}
		if took > most {
			t.Errorf("%d bytes make %d, and %d is the most", len(list), took, most)
		}
		if err != nil {
			if names != nil || !strings.HasPrefix(err.Error(), "cannot read node list ") || len(err.Error()) > 1200 {
				t.Errorf("%d names with the error %v", len(names), err)
			}
			return
		}
		if len(names) == 0 || len(names) > limit {
			t.Errorf("%q has %d names", list, len(names))
		}
		for _, name := range names {
			if name == "" || len(name) > maxNodeName || strings.ContainsAny(name, "[], ") {
				t.Fatalf("%q has the name %q", list, name)
			}
		}
		checkRoundTrip(t, names)
		if again := CompactNodeList(names); CompactNodeList(append(names, names...)) != again {
			t.Errorf("%q is another list when every host is named twice", again)
		}
	})
}

// FuzzCompactNodeList compacts hosts of any names, separated by blanks.
func FuzzCompactNodeList(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		hosts := strings.Split(text, " ")
		list := CompactNodeList(hosts)
		for _, host := range hosts {
			if names, err := ExpandNodeList(host, 1); host != "" && (err != nil || names[0] != host) {
				return // it is not a host name
			}
		}
		hosts = slices.DeleteFunc(hosts, func(host string) bool { return host == "" })
		if len(list) > len(strings.Join(hosts, ","))+2*len(hosts) {
			t.Errorf("%q is compacted to %q", hosts, list)
		}
		checkRoundTrip(t, hosts)
	})
}
