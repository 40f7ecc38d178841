package exec

import (
	"slices"
	"strings"
	"testing"
)

// FuzzRequestsShown parses any names in exec/ or control/: everything that it returns for a request
// exists under exactly these names.
func FuzzRequestsShown(f *testing.F) {
	f.Add("", "0123456789abcdef.request\n0123456789abcdef.beat.000003\n0123456789ABCDEF.request\n.0123456789abcdef.taken.17")
	f.Add(callPrefix, "call.0123456789abcdef\ncall.call.0123456789abcdef\ncall.\njob")
	f.Add(orderPrefix, "exec.0123456789abcdef\nexec.0123456789abcdef.cancel\nexec.0123456789abcde")
	f.Fuzz(func(t *testing.T, kind, listing string) {
		names := strings.Split(listing, "\n")
		for id, what := range groupByRequest(names, kind) {
			if raw, ok := id.decode(); !ok || requestIDFrom(raw) != id {
				t.Errorf("%q is no id", id)
			}
			for _, name := range what.fileNames(id) {
				// A name that consists of the ID alone has no dot.
				if plain := strings.TrimSuffix(name, "."); !slices.Contains(names, kind+name) && !slices.Contains(names, kind+plain) {
					t.Errorf("%q is in none of %q", kind+name, names)
				}
			}
			if what.newestBeat() < 0 {
				t.Errorf("%q has beat %d", id, what.newestBeat())
			}
		}
	})
}
