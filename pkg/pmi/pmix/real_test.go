//go:build mpi

package pmix_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/pmi"
	"github.com/bringupd/bringupd/pkg/pmi/pmix"
)

// TestRealClients has plain clients of each library served by each.
func TestRealClients(t *testing.T) {
	program := built(t, "client.c", "gcc", "-O1")
	libs := libraries(t)
	for _, by := range []string{"4", "5"} {
		for _, of := range []string{"4", "5"} {
			t.Run("server "+by+" client "+of, func(t *testing.T) { scenarios(t, program, libs[by], libs[of]) })
		}
	}
}

func scenarios(t *testing.T, program string, server, client pmix.Library) {
	for _, name := range []string{"exchange", "modex", "late", "publish", "event", "query", "log", "unsupported", "told", "nothing", "much"} {
		t.Run(name, func(t *testing.T) {
			m := raise(t, server)
			m.env = prefixed(client)
			fine(t, m.run([]string{program, client.Path, name}), 4, "fine\n")
			for place, s := range m.at {
				for _, rank := range []int{2 * place, 2*place + 1} {
					if spoke, finalized := s.Spoke(pmi.Proc{Job: "world", Rank: rank}); !spoke || !finalized {
						t.Errorf("rank %d: spoke %v, finalized %v", rank, spoke, finalized)
					}
				}
			}
			if name == "log" {
				m.heard(4, `says "told by the server\n", true`)
			}
		})
	}
	t.Run("spawn", func(t *testing.T) {
		m := raise(t, server)
		m.env = prefixed(client)
		fine(t, m.run([]string{program, client.Path, "spawn"}), 7, "fine\n")
	})
	t.Run("timeout", func(t *testing.T) {
		m := raise(t, server)
		m.env = prefixed(client)
		fine(t, m.run([]string{program, client.Path, "timeout"}), 4, "fine\n")
	})
	t.Run("death", func(t *testing.T) {
		m := raise(t, server)
		m.env = prefixed(client)
		for rank, e := range m.run([]string{program, client.Path, "death"}) {
			if last := rank.Rank == 3; last && e.code != 137 || !last && (e.code != 0 || e.said != "fine\n") {
				t.Errorf("%v: exit code %d: %s", rank, e.code, e.said)
			}
		}
		if spoke, finalized := m.at[1].Spoke(pmi.Proc{Job: "world", Rank: 3}); !spoke || finalized {
			t.Errorf("the one that has died: spoke %v, finalized %v", spoke, finalized)
		}
	})
	t.Run("abort", func(t *testing.T) {
		m := raise(t, server)
		m.env = prefixed(client)
		m.run([]string{program, client.Path, "abort"})
		m.heard(1, "world.3 aborts with 42: enough of it")
	})
}

// prefixed is what a library needs to find its own files.
func prefixed(l pmix.Library) []string {
	if l.Prefix == "" {
		return nil
	}
	return []string{"OPAL_PREFIX=" + l.Prefix, "PMIX_PREFIX=" + l.Prefix}
}

func (t *team) heard(times int, what string) {
	t.t.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(slices.DeleteFunc(slices.Clone(t.said), func(s string) bool { return !strings.Contains(s, what) })); n != times {
		t.t.Errorf("heard %q %d times, not %d: %s", what, n, times, fmt.Sprint(t.said))
	}
}
