//go:build testbed

package testbed

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMooseFS checks on a testbed of four nodes that MooseFS works as a shared file system.
func TestMooseFS(t *testing.T) {
	b := start(t, Config{Nodes: 4, Share: MooseFS})

	t.Run("each node has a mount of its own", func(t *testing.T) {
		seen := make(map[string]string) // device number to node
		for i := range 4 {
			got := strings.Fields(
				output(t, b.OnNode(t.Context(), i, "stat", "--format=%d", b.Share())))
			if other, taken := seen[got[0]]; taken {
				t.Errorf("%s has the mount of %s", b.Node(i), other)
			}
			seen[got[0]] = b.Node(i)
		}
	})
	t.Run("a file made on one node is listed on another", func(t *testing.T) { testSeen(t, b) })
	t.Run("a step's files are seen by the host once srun has ended", func(t *testing.T) {
		output(t, b.Command(t.Context(), "srun", "-N4", "sh", "-c",
			"echo $SLURM_PROCID >rank-$SLURM_PROCID"))
		for rank, want := range []string{"0\n", "1\n", "2\n", "3\n"} {
			name := filepath.Join(b.Share(), "rank-"+strings.TrimSpace(want))
			if got, err := os.ReadFile(name); string(got) != want {
				t.Errorf("the host reads %q, %v of rank %d, want %q", got, err, rank, want)
			}
		}
	})
	t.Run("the nodes see what the host makes", func(t *testing.T) {
		must(t, os.WriteFile(filepath.Join(b.Share(), "of-the-host"), []byte("hello\n"), 0o644))
		if got := output(t,
			b.Command(t.Context(), "srun", "-N4", "cat", "of-the-host")); got != strings.Repeat(
			"hello\n", 4) {
			t.Errorf("the nodes read %q, want four times hello", got)
		}
	})
	t.Run("link down and up", func(t *testing.T) { testLink(t, b) })
	t.Run("hang and resume", func(t *testing.T) { testHang(t, b) })
	t.Run("lose and heal", func(t *testing.T) { testLose(t, b) })
	t.Run("a second bed", func(t *testing.T) { testSecondBed(t, b, MooseFS) })
	t.Run("close leaves nothing", func(t *testing.T) { testClose(t, b) })
}

// TestMooseFSFiles checks that MooseFS uses only addresses and folders of its testbed.
func TestMooseFSFiles(t *testing.T) {
	s := &slot{number: 7, dir: "/beds/7"}
	files := mooseFSFiles(s)
	for name, content := range files {
		for line := range strings.Lines(content) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
			if strings.HasSuffix(key, "_HOST") && value != "10.107.0.1" {
				t.Errorf("%s has %q, want the address of ctl", name, line)
			}
			isPath := strings.HasSuffix(key, "_PATH") || strings.HasSuffix(key, "_FILENAME")
			if isPath && !strings.HasPrefix(value, "/beds/7/") {
				t.Errorf("%s has %q, want a path in the bed's folder", name, line)
			}
		}
	}
	for name, want := range map[string]string{
		"etc/mfsmaster.cfg":      "MATOCL_LISTEN_HOST = 10.107.0.1",
		"etc/mfschunkserver.cfg": "CSSERV_LISTEN_HOST = 10.107.0.1",
		"etc/mfshdd.cfg":         "/beds/7/moosefs/chunks",
		"etc/mfsmount.cfg":       "mfsmaster=10.107.0.1",
	} {
		if !slices.Contains(strings.Split(files[name], "\n"), want) {
			t.Errorf("the line %q is missing in %s:\n%s", want, name, files[name])
		}
	}
}
