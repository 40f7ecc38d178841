//go:build mpi

package pmix_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
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

// TestRealGroups has clients make groups, served by the library that they have: versions 4 and 5 tell their servers of groups in different ways.
func TestRealGroups(t *testing.T) {
	program := built(t, "client.c", "gcc", "-O1")
	for version, library := range libraries(t) {
		t.Run(version, func(t *testing.T) {
			m := raise(t, library)
			m.env = prefixed(library)
			fine(t, m.run([]string{program, library.Path, "group"}), 4, "fine\n")
		})
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

// TestRealOpenMPI has ranks of an Open MPI of each line, on two nodes.
func TestRealOpenMPI(t *testing.T) {
	libs := libraries(t)
	program := built(t, "../../pmi1/testdata/ring.c", "mpicc.openmpi")
	script, err := filepath.Abs("../pmi1/testdata/mpi.py")
	if err != nil {
		t.Fatal(err)
	}
	// Both nodes are one machine here, which version 4 knows by its name, and would share memory with ranks of the other.
	four := []string{"JSM_JSRUN_PORT=1", "OMPI_MCA_btl=^vader"}
	for _, by := range []string{"4", "5"} {
		for _, tc := range []struct {
			name    string
			argv    []string
			env     []string
			ranks   int
			printed map[string]int
		}{
			{"4 ring", []string{program, "ring"}, four, 4, map[string]int{"sum 6, 2 here, universe 9\n": 4}},
			{"4 publish", []string{program, "publish"}, four, 4, map[string]int{"met by name\n": 2}},
			{"5 ring", []string{python(t), script, "ring"}, nil, 4, map[string]int{"sum 6, 2 here, universe 9\n": 4}},
			{"5 publish", []string{python(t), script, "publish"}, nil, 4, map[string]int{"met by name\n": 2}},
			{"5 spawn", []string{python(t), script, "spawn"}, nil, 7, map[string]int{"children 0 1 2 of 3\n": 1}},
		} {
			t.Run("server "+by+" Open MPI "+tc.name, func(t *testing.T) {
				m := raise(t, libs[by])
				m.env = tc.env
				exits := m.run(tc.argv)
				fine(t, exits, tc.ranks, "")
				for line, times := range tc.printed {
					n := 0
					for _, e := range exits {
						n += strings.Count(e.said, line)
					}
					if n != times {
						t.Errorf("%q was printed %d times, not %d: %v", line, n, times, exits)
					}
				}
			})
		}
	}
}

// TestLayout holds what is declared here to the headers of a version.
func TestLayout(t *testing.T) {
	header := needs(t, "the layout", "/usr/lib/*/pmix2/include/pmix_server.h")
	check := exec.Command("gcc", "-std=gnu11", "-fsyntax-only", "-Wno-deprecated-declarations", "-I"+filepath.Dir(header), "testdata/layout.c")
	said, err := check.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}
