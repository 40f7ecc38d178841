package health

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKernelPorts(t *testing.T) {
	for _, tc := range []struct {
		name            string
		given, reserved string
		wantGiven       [2]int
		wantReserved    [][2]int
	}{
		{"as it is delivered", "32768\t60999\n", "\n", [2]int{32768, 60999}, nil},
		{"with some kept free", "9000 65000\n", "8080,9148,30000-31000\n", [2]int{9000, 65000}, [][2]int{{8080, 8080}, {9148, 9148}, {30000, 31000}}},
		{"cut off", "9000 \n", "8080,\n", [2]int{}, [][2]int{{8080, 8080}}},
		{"not to be understood", "many\n", "none\n", [2]int{}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "proc/sys/net/ipv4")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"ip_local_port_range": tc.given, "ip_local_reserved_ports": tc.reserved} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.wantGiven, EphemeralPorts(root)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.wantReserved, ReservedPorts(root)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := EphemeralPorts(t.TempDir()); got != [2]int{} {
		t.Errorf("of nothing there is %v", got)
	}
}
