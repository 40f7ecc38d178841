package health

import "testing"

func TestKernelPorts(t *testing.T) {
	for text, want := range map[string][2]int{
		"32768\t60999\n": {32768, 60999}, "9000 65000\n": {9000, 65000}, "9000 \n": {}, "many\n": {}, "": {},
	} {
		root := rootWith(t, map[string]string{"proc/sys/net/ipv4/ip_local_port_range": text})
		if got := EphemeralPorts(root); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
	if got := EphemeralPorts(t.TempDir()); got != [2]int{} {
		t.Errorf("of nothing there is %v", got)
	}
}
