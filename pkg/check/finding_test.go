package check

import (
	"encoding/json"
	"testing"
)

func TestDeviceString(t *testing.T) {
	for _, tc := range []struct {
		device Device
		want   string
	}{
		{Device{Index: 3, UUID: "GPU-1", Bus: "0000:3b:00.0"}, "GPU 3 (0000:3b:00.0)"},
		{Device{Index: 0, UUID: "GPU-1"}, "GPU 0"},
		{Device{Index: -1, UUID: "GPU-1", Bus: "0000:3b:00.0"}, "GPU 0000:3b:00.0"},
		{Device{Index: -1, UUID: "GPU-1"}, "GPU-1"},
		{Device{Index: -1}, "GPU ?"},
		{Device{Index: 0, Name: "mlx5_0", Bus: "0000:18:00.0"}, "mlx5_0"},
		{Device{Index: -1, Name: "/dev/shm"}, "/dev/shm"},
	} {
		if got := tc.device.String(); got != tc.want {
			t.Errorf("%+v is called %q, want %q", tc.device, got, tc.want)
		}
	}
}

// TestFindingAsJSON verifies the JSON names, which other programs read: they never change.
func TestFindingAsJSON(t *testing.T) {
	data, err := json.Marshal(Finding{
		ID: "gpu.remap", Device: &Device{Index: 2, UUID: "GPU-1", Bus: "0000:3b:00.0"}, Verdict: Fail,
		Observed: "a", Expected: "b", Source: "c", Hint: "d", Class: ClassNode, MaxWait: 1,
		Strict: true, ChangedBy: "gpu.remap=fail", Lines: []string{"e"},
	})
	const want = `{"id":"gpu.remap","device":{"index":2,"uuid":"GPU-1","bus":"0000:3b:00.0"},"verdict":"FAIL",` +
		`"observed":"a","expected":"b","source":"c","hint":"d","class":"node",` +
		`"patience_ns":1,"strict":true,"by":"gpu.remap=fail","lines":["e"]}`
	if err != nil || string(data) != want {
		t.Errorf("got  %s, %v\nwant %s", data, err, want)
	}
	data, err = json.Marshal(Finding{ID: "node.shm", Verdict: Pass, Observed: "64 GiB"})
	if err != nil || string(data) != `{"id":"node.shm","verdict":"PASS","observed":"64 GiB"}` {
		t.Errorf("got %s, %v", data, err)
	}
}
