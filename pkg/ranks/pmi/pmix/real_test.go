//go:build mpi

package pmix_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/ranks/pmi"
	"github.com/bringupd/bringupd/pkg/ranks/pmi/pmix"
	"github.com/bringupd/bringupd/test/users"
)

// TestRealClients runs plain clients of each library with the server of each library.
func TestRealClients(t *testing.T) {
	program := built(t, "client.c", "gcc", "-O1")
	libs := libraries(t)
	for _, by := range []string{"4", "5"} {
		for _, of := range []string{"4", "5"} {
			t.Run("server "+by+" client "+of, func(t *testing.T) { scenarios(t, program, libs[by], libs[of]) })
		}
	}
}

// TestRealGroups lets clients create groups, with the server of their own library: versions 4 and 5
// notify their servers of groups in different ways.
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
	for _, name := range []string{"exchange", "modex", "late", "publish", "event", "query", "log",
		"unsupported", "told", "nothing", "much"} {
		t.Run(name, func(t *testing.T) {
			m := raise(t, server)
			m.env = prefixed(client)
			fine(t, m.run([]string{program, client.Path, name}), 4, "fine\n")
			for place, s := range m.at {
				for _, rank := range []int{2 * place, 2*place + 1} {
					if spoke, finalized := s.ClientState(pmi.ProcID{Job: "world", Rank: rank}); !spoke || !finalized {
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
		if spoke, finalized := m.at[1].ClientState(pmi.ProcID{Job: "world", Rank: 3}); !spoke || finalized {
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

// prefixed returns the environment that a library needs to find its own files.
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
	if n := len(slices.DeleteFunc(slices.Clone(t.said),
		func(s string) bool { return !strings.Contains(s, what) })); n != times {
		t.t.Errorf("heard %q %d times, not %d: %s", what, n, times, fmt.Sprint(t.said))
	}
}

// TestRealOpenMPI runs ranks of Open MPI, of each version line, on two nodes.
func TestRealOpenMPI(t *testing.T) {
	libs := libraries(t)
	program := built(t, "../../testdata/ring.c", "mpicc.openmpi")
	script, err := filepath.Abs("../testdata/mpi.py")
	if err != nil {
		t.Fatal(err)
	}
	// Both nodes are the same machine here. Version 4 recognises it by its name, and would share
	// memory with ranks of the other node.
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

// TestLayout compares the declarations here with the headers of a version.
func TestLayout(t *testing.T) {
	header := needs(t, "the layout", "/usr/lib/*/pmix2/include/pmix_server.h")
	check := exec.Command("gcc", "-std=gnu11", "-fsyntax-only", "-Wno-deprecated-declarations",
		"-I"+filepath.Dir(header), "testdata/layout.c")
	said, err := check.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestRealStranger lets another user connect to the server of a job's user with a real libpmix,
// with all data that a rank receives and with the UID of the job's user, which libpmix accepts.
func TestRealStranger(t *testing.T) {
	users.Need(t)
	program := testProgram(t)
	claimed := fmt.Sprint("-DCLAIMED=", users.Job.ID)
	client := users.Public(t, built(t, "client.c", "gcc", "-O1", "-rdynamic", claimed))
	for version, library := range libraries(t) {
		t.Run(version, func(t *testing.T) {
			if library.Prefix != "" { // its files are in the home directory of the builder
				library = public(t, library)
				library.Prefix = ""
			}
			dir := users.Job.Dir(t)
			s := serveAs(t, program, library, "PMIX_MCA_gds=hash", "PMIX_MCA_psec=native")
			str := func(key, value string) []byte { return slices.Concat(text(key), number(3), text(value)) }
			name := pmi.NewJobName("bringupd-1.0", [24]byte{1, 2, 3})
			for op, fields := range [][]byte{
				1: slices.Concat(number(5), str("pmix.srv.nspace", "bringupd-server"),
					text("pmix.srv.rank"), number(40), number(0),
					str("pmix.hname", "n0"), str("pmix.srvr.tmpdir", dir), str("pmix.sys.tmpdir", dir)),
				2: slices.Concat(text(name), number(1), number(6), text("pmix.nmap"),
					number(0xfff0), text("n0"), text("pmix.pmap"), number(0xfff1), text("0"),
					text("pmix.job.size"), number(14), number(1), text("pmix.univ.size"), number(14), number(1),
					text("pmix.local.size"), number(14), number(1), str("pmix.jobid", name)),
				4: slices.Concat(text(name), number(0)),
			} {
				if fields == nil {
					continue
				}
				if status, _ := s.order(byte(op), fields); status != 0 {
					t.Fatalf("order %d ends with %d", op, status)
				}
			}
			_, list := s.order(5, slices.Concat(text(name), number(0)))
			var env []string
			for list = list[4:]; len(list) > 0; {
				n := 4 + binary.BigEndian.Uint32(list)
				env, list = append(env, string(list[4:n])), list[n:]
			}
			if said := strings.Join(s.Args, " "); strings.Contains(said, name) {
				t.Errorf("the name is in the server's arguments: %s", said)
			}
			run := func(u users.User) string {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				cmd := u.Command(ctx, u.Dir(t), client, library.Path, "nothing")
				cmd.Env = append(cmd.Env, env...)
				said, err := cmd.CombinedOutput()
				return fmt.Sprintf("%s %v", said, err)
			}
			go s.agree()
			if got := run(users.Stranger); strings.Contains(got, "fine") {
				t.Errorf("another user is served: %s", got)
			} else {
				t.Logf("another user: %s", got)
			}
			if got := run(users.Job); got != "fine\n <nil>" {
				t.Errorf("the job's user hears %s", got)
			}
		})
	}
}

// agree answers all requests of clients with success.
func (s *served) agree() {
	for {
		var length uint32
		if binary.Read(s.out, binary.BigEndian, &length) != nil {
			return
		}
		question := make([]byte, length)
		if _, err := io.ReadFull(s.out, question); err != nil {
			return
		}
		answer := slices.Concat(number(9), []byte{8}, question[1:5], number(0))
		if _, err := s.in.Write(answer); err != nil {
			return
		}
	}
}

// TestRealSecret runs ranks of Open MPI, of each version line, and meanwhile searches everything
// that another user can see for the secret in the job's name.
func TestRealSecret(t *testing.T) {
	users.Need(t)
	libs := libraries(t)
	program := built(t, "../../testdata/ring.c", "mpicc.openmpi")
	script, err := filepath.Abs("../testdata/mpi.py")
	if err != nil {
		t.Fatal(err)
	}
	const secret = "0102030405060708090a0b0c0d0e0f101112131415161718"
	raw, err := hex.DecodeString(secret)
	if err != nil {
		t.Fatal(err)
	}
	for version, argv := range map[string][]string{"4": {program, "publish"}, "5": {python(t), script, "spawn"}} {
		t.Run(version, func(t *testing.T) {
			m := raiseAs(t, pmi.NewJobName("bringupd-1.0", [24]byte(raw)), libs[version])
			if version == "4" {
				m.env = []string{"JSM_JSRUN_PORT=1", "OMPI_MCA_btl=^vader"}
			}
			ctx, stop := context.WithCancel(t.Context())
			looks, seen := 0, make(chan string)
			go func() {
				found := ""
				for ; found == "" && ctx.Err() == nil; looks++ {
					look := users.Stranger.Command(ctx, "/tmp", "sh", "-c",
						`find /dev/shm /tmp 2>/dev/null | grep "$0"; cat /proc/[0-9]*/cmdline 2>/dev/null | `+
							`tr '\0' '\n' | grep -v grep | grep "^[^$]*$0"`, secret[:16])
					said, _ := look.Output()
					found = strings.ReplaceAll(string(said), secret[:16]+"\n", "") // its own argument
				}
				seen <- found
			}()
			exits := m.run(argv)
			stop()
			if found := <-seen; found != "" || looks < 2 {
				t.Errorf("in %d looks another user has seen %q", looks, found)
			}
			for rank, e := range exits {
				if e.code != 0 || strings.Contains(e.said, secret) {
					t.Errorf("%v: exit code %d: %s", rank, e.code, e.said)
				}
			}
		})
	}
}
