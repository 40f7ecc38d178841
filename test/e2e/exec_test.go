//go:build testbed

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// outside runs bringupd on the login node.
func (bed *lane) outside(t *testing.T, args ...string) (code int, stdout, stderr string,
	took time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), ceiling)
	defer cancel()
	return timed(t, bed.Command(ctx, program, args...))
}

// timed runs a command to its end.
func timed(t *testing.T, cmd *exec.Cmd) (code int, stdout, stderr string, took time.Duration) {
	t.Helper()
	var out, errs buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	err := cmd.Run()
	took = time.Since(began)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), out.String(), errs.String(), took
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, out.String(), errs.String(), took
}

// hostnames returns the expected output of exec --all -- hostname.
func (bed *lane) hostnames() string {
	var lines []string
	for node := range bed.Nodes() {
		lines = append(lines, fmt.Sprintf("n%d: n%d", node, node))
	}
	return strings.Join(lines, "\n") + "\n"
}

func sortedLines(text string) string {
	lines := strings.SplitAfter(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// TestExec checks that all nodes of a job without a driver run commands that are requested from
// outside.
func TestExec(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"on", "off"} {
		t.Run("peer link "+mode, func(t *testing.T) {
			bed := claim(t, nodes)
			j := bed.start(t, launch{nodes: nodes, flags: []string{"--lifeline=" + mode}})
			j.reached("control/go")
			for range 5 {
				code, out, errs, took := bed.outside(t, "exec", "--all", j.logs, "--", "hostname")
				t.Logf("%d nodes have answered after %s", nodes, took.Round(time.Millisecond))
				if code != 0 || sortedLines(out) != bed.hostnames() {
					t.Fatalf("exec ended with %d: %s%s", code, out, errs)
				}
			}
			// Repeat it from a node, whose mount serves stale data.
			ctx, cancel := context.WithTimeout(context.Background(), ceiling)
			code, out, errs, took := timed(t,
				bed.UserOnNode(ctx, 6, program, "exec", "--all", j.logs, "--", "hostname"))
			cancel()
			t.Logf("from a node: after %s", took.Round(time.Millisecond))
			if code != 0 || sortedLines(out) != bed.hostnames() {
				t.Errorf("exec on a node ended with %d: %s%s", code, out, errs)
			}
			if code, out, errs, _ := bed.outside(t, "exec", "--node=n3", "--node=5", j.logs, "--",
				"sh", "-c", "exit $BRINGUPD_NODE_RANK"); code != 5 || out != "" {
				t.Errorf("exec ended with %d: %s%s", code, out, errs)
			}
			foreign(t, j)
			killed(t, j)
			if code, _, errs, _ := bed.outside(t, "stop", j.logs); code != 0 {
				t.Errorf("stop ended with %d: %s", code, errs)
			}
			j.wantCode(0)
		})
	}
}

// foreign places a request of another user among the requests, and checks that it is refused with a
// message.
func foreign(t *testing.T, j *job) {
	t.Helper()
	const id = "0123456789abcdef"
	dir := filepath.Join(j.runDir(), signal.ControlDir)
	ran := j.bed.place(t)
	// Rename a complete file of another user into place, because the head may poll at any time.
	part := filepath.Join(dir, "."+id)
	err := errors.Join(
		os.WriteFile(part, fmt.Appendf(nil,
			`{"v":2,"argv":["touch",%q],"nodes":["all"]}`+"\n", ran), 0o600),
		os.Chown(part, 65534, 65534),
		os.Rename(part, filepath.Join(dir, "call."+id)),
	)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		data, err := os.ReadFile(filepath.Join(dir, "exec."+id))
		if err != nil || !strings.Contains(string(data), `"refused":"cannot use `) ||
			!strings.Contains(string(data), "it belongs to") {
			return fmt.Sprintf("%v, %s\n%s", err, data, &j.stderr)
		}
		return ""
	})
	if _, err := os.Stat(ran); err == nil {
		t.Error("another user's command has run")
	}
}

// killed kills a caller and checks that the requested command ends.
func killed(t *testing.T, j *job) {
	t.Helper()
	cmd := j.bed.Command(context.Background(), program, "exec", "--all", j.logs, "--",
		"sleep", "4321")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for node := range nodes {
		j.bed.find(t, node, "sleep", "4321")
	}
	began := time.Now()
	_ = cmd.Process.Signal(syscall.SIGKILL)
	_ = cmd.Wait()
	eventually(t, func() string {
		if left := j.bed.processes(); strings.Contains(left, "sleep 4321") {
			return left
		}
		return ""
	})
	t.Logf("what a killed caller had asked for was gone after %s",
		time.Since(began).Round(time.Millisecond))
}

// TestExecHundredCallers checks a hundred concurrent callers.
func TestExecHundredCallers(t *testing.T) {
	bed := claim(t, nodes)
	j := bed.start(t, launch{nodes: nodes})
	j.reached("control/go")
	began := time.Now()
	var callers sync.WaitGroup
	for i := range 100 {
		callers.Go(func() {
			node := fmt.Sprintf("n%d", i%nodes)
			code, out, errs, _ := bed.outside(t, "exec", "--node="+node, j.logs, "--",
				"echo", itoa(i))
			if code != 0 || out != itoa(i)+"\n" {
				t.Errorf("caller %d ended with %d: %s%s", i, code, out, errs)
			}
		})
	}
	callers.Wait()
	t.Logf("a hundred callers were served in %s", time.Since(began).Round(time.Millisecond))
	if code, _, errs, _ := bed.outside(t, "stop", j.logs); code != 0 {
		t.Errorf("stop ended with %d: %s", code, errs)
	}
	j.wantCode(0)
}
