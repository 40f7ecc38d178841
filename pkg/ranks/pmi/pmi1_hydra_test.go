//go:build mpi

package pmi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// asRank is the first argument of this test's program when it runs as a rank.
const asRank = "rank"

const (
	abortCode = 42
	// preput is a key for spawned ranks, such as MPI's port. Without one, Intel's mpiexec spawns no
	// ranks.
	preput = "bringupd-test-parent"
)

func init() {
	if len(os.Args) < 3 || os.Args[1] != asRank {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), ceiling)
	defer cancel()
	if err := rank(ctx, os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// rank runs one rank of the client's own test.
func rank(ctx context.Context, does string) error {
	c, err := dial(os.Getenv)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.init(ctx); err != nil {
		return err
	}
	if _, err := c.universe(ctx); err != nil {
		return err
	}
	if c.spawned {
		if port, err := c.get(ctx, preput); err != nil || port != "port" {
			return fmt.Errorf("the spawned rank finds %q: %v", port, err)
		}
	} else if does == "spawn" && c.rank == 0 {
		commands := []Command{{Argv: []string{os.Args[0], asRank, "put"}, Ranks: 1}}
		if err := c.spawn(ctx, commands, map[string]string{preput: "port"}); err != nil {
			return err
		}
	}
	if err := c.put(ctx, fmt.Sprint("of-", c.rank), fmt.Sprint("value-of-", c.rank)); err != nil {
		return err
	}
	if err := c.barrier(ctx); err != nil {
		return err
	}
	for of := range c.size {
		if got, err := c.get(ctx, fmt.Sprint("of-", of)); err != nil || got != fmt.Sprint("value-of-", of) {
			return fmt.Errorf("it gets %q of rank %d: %v", got, of, err)
		}
	}
	fmt.Printf("rank %d of %d is well\n", c.rank, c.size)
	if does != "abort" {
		return c.finalize(ctx)
	}
	if c.rank == c.size-1 {
		if err := c.abort(abortCode, "enough"); err != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, c.conn) // all ranks will be ended
	return errors.Join(err, errors.New("cannot wait for the end: the server has gone"))
}

// TestRealHydra tests the client of these tests with other servers: the mpiexec programs of MPICH 4
// and 5 and of Intel.
func TestRealHydra(t *testing.T) {
	all := map[string]string{debian: "mpiexec.hydra"}
	for _, f := range flavours(t)[1:] {
		all[f.name] = filepath.Join(filepath.Dir(f.python), "mpiexec")
	}
	for name, mpiexec := range all {
		for _, tc := range []struct {
			does        string
			ranks, code int
		}{{"put", 3, 0}, {"spawn", 4, 0}, {"abort", 3, abortCode}} {
			t.Run(name+", "+tc.does, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				job := exec.CommandContext(ctx, mpiexec, "-n", "3", os.Args[0], asRank, tc.does)
				job.Env = append(os.Environ(), "I_MPI_HYDRA_BOOTSTRAP=fork")
				out, err := job.Output()
				if exit, ended := errors.AsType[*exec.ExitError](err); ended {
					t.Logf("%s", exit.Stderr)
				} else if err != nil {
					t.Fatal(err)
				}
				code := job.ProcessState.ExitCode()
				if well := strings.Count(string(out), " is well"); code != tc.code || code == 0 && well != tc.ranks {
					t.Errorf("it has ended with %d, and %d ranks were well:\n%s", code, well, out)
				}
			})
		}
	}
}
