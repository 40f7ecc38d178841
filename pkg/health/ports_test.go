package health

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKernelPorts(t *testing.T) {
	for _, tc := range []struct {
		name      string
		given     string
		wantGiven [2]int
	}{
		{"as it is delivered", "32768\t60999\n", [2]int{32768, 60999}},
		{"with some kept free", "9000 65000\n", [2]int{9000, 65000}},
		{"cut off", "9000 \n", [2]int{}},
		{"not to be understood", "many\n", [2]int{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "proc/sys/net/ipv4")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "ip_local_port_range"), []byte(tc.given), 0o644); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.wantGiven, EphemeralPorts(root)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := EphemeralPorts(t.TempDir()); got != [2]int{} {
		t.Errorf("of nothing there is %v", got)
	}
}
