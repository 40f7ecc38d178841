//go:build testbed && recipes

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// JAX finds its world by Slurm's own variables: those of the step speak of one daemon
// a node, and each rank must read its own.
func TestJAXFindsItsWorld(t *testing.T) {
	python := os.Getenv("BRINGUPD_TEST_JAX")
	if python == "" {
		t.Fatal("cannot run without JAX: BRINGUPD_TEST_JAX must name a Python that has it (make test installs one)")
	}
	dir := place(t)
	must(t, os.MkdirAll(dir, 0o755))
	logs := filepath.Join(dir, "logs")
	t.Setenv("LOG_DIR", logs)
	t.Setenv("RANKS_PER_NODE", "2")
	t.Setenv("BRINGUPD_OVERSUBSCRIBE", "true") // the machine may have fewer cores than ranks
	t.Setenv("PATH", strings.Join([]string{bed.Bin(), filepath.Dir(python), os.Getenv("PATH")}, ":"))
	b := submitFile(t, dir, "--nodes=2", "--nodelist=n[0-1]", copyFile(t, "../../deploy/slurm/ranks.sbatch", dir),
		"python", copyFile(t, "../../examples/jax_allreduce.py", dir))
	within(t, jaxEnd, func() string { return missing(filepath.Join(logs, b.id+".0", signal.NameResult)) })
	result := resultOf(t, b, logs)
	out, err := os.ReadFile(b.out)
	must(t, err)
	// Gloo says more.
	said := slices.DeleteFunc(strings.Split(string(out), "\n"), func(line string) bool { return !strings.HasPrefix(line, "rank ") })
	slices.Sort(said)
	want := []string{"rank 0 of 4: the sum of all is 6", "rank 1 of 4: the sum of all is 6",
		"rank 2 of 4: the sum of all is 6", "rank 3 of 4: the sum of all is 6"}
	if result.Code != 0 || !slices.Equal(said, want) {
		errors, _ := os.ReadFile(filepath.Join(dir, "err"))
		t.Errorf("the job ended with %d: %s; it said %q, want %q\n%s", result.Code, result.Why, out, want, errors)
	}
}

// jaxEnd bounds a world of JAX on this machine's few cores.
const jaxEnd = 4 * time.Minute
