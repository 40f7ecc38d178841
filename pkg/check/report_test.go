package check

import "testing"

func TestSentence(t *testing.T) {
	gpu := func(index int, observed string) Finding {
		return Finding{ID: "gpu.fabric", Device: &Device{Index: index}, Observed: observed, Expected: "joined"}
	}
	for _, tc := range []struct {
		name  string
		found []Finding
		want  string
	}{
		{"nothing", nil, ""},
		{"of no device", []Finding{{ID: "host.shm", Observed: "small"}}, "host.shm: small"},
		{"of one", []Finding{gpu(3, "joining")}, "gpu.fabric: GPU 3: joining (expected: joined)"},
		{
			"the same of four", []Finding{gpu(0, "joining"), gpu(1, "joining"), gpu(2, "failed"),
				gpu(3, "joining"), gpu(4, "joining")},
			"gpu.fabric: GPU 0, GPU 1, and 2 more: joining (expected: joined); gpu.fabric: GPU " +
				"2: failed (expected: joined)",
		},
		{
			"more than a sentence bears", []Finding{gpu(0, "a"), gpu(0, "b"), gpu(0, "c"), gpu(0, "d"), gpu(1, "d")},
			"gpu.fabric: GPU 0: a (expected: joined); gpu.fabric: GPU 0: b (expected: joined); " +
				"gpu.fabric: GPU 0: c (expected: joined); and 2 more",
		},
		{"what would move the cursor", []Finding{{ID: "active.x", Observed: "\x1b[31mred\nnext"}},
			"active.x: red next"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := FormatSentence(tc.found); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}
