package check

import (
	"fmt"
	"slices"
	"testing"
)

// measuring is a node of that rank whose GPUs have those rates.
func measuring(rank int, rates ...float64) Group {
	g := Group{Ranks: []int{rank}}
	for i, rate := range rates {
		g.Report.Figures = append(g.Report.Figures, Figure{
			ID: "active.gpu_copy", What: "to it", Device: Device{Index: i}, Kind: "H100", Value: rate, Unit: "GB/s",
		})
	}
	return g
}

// figured is a group with one of its figures changed.
func figured(g Group, i int, change func(*Figure)) Group {
	change(&g.Report.Figures[i])
	return g
}

func TestJudgeFigures(t *testing.T) {
	for _, tc := range []struct {
		name   string
		groups []Group
		want   []string
	}{
		{"nothing was measured", []Group{{}}, nil},
		{"one alone", []Group{measuring(0, 55)}, []string{"PASS active.gpu_copy 1 GPU: 55 GB/s; there is no other of its like to compare it with"}},
		{"alike", []Group{measuring(0, 55, 54.2, 50, 53)}, []string{"PASS active.gpu_copy 4 GPUs: 50 to 55 GB/s"}},
		{"just not slow", []Group{measuring(0, 40, 50, 50)}, []string{"PASS active.gpu_copy 3 GPUs: 40 to 50 GB/s"}},
		{"one is slow", []Group{measuring(0, 55, 55, 27.5, 55)}, []string{"WARN active.gpu_copy GPU 2 [0] strict 27.5 GB/s to it: 50 % of 55, the median of 4 like it"}},
		{"of two, the slower", []Group{measuring(0, 20, 55)}, []string{"WARN active.gpu_copy GPU 0 [0] strict 20 GB/s to it: 53 % of 37.5, the median of 2 like it"}},
		{"a node of many", []Group{measuring(0, 55, 55), measuring(1, 12, 12), measuring(2, 55, 54)}, []string{
			"WARN active.gpu_copy GPU 0 [1] strict 12 GB/s to it: 22 % of 54.5, the median of 6 like it",
			"WARN active.gpu_copy GPU 1 [1] strict 12 GB/s to it: 22 % of 54.5, the median of 6 like it",
		}},
		{"one of another model", []Group{figured(measuring(0, 55, 55, 12), 2, func(f *Figure) { f.Kind = "T4" })},
			[]string{"PASS active.gpu_copy 3 GPUs: 12 to 55 GB/s"}},
		{"another way", []Group{figured(measuring(0, 55, 55, 12), 2, func(f *Figure) { f.What = "from it" })},
			[]string{"PASS active.gpu_copy 3 GPUs: 12 to 55 GB/s"}},
		{"a second check", []Group{figured(measuring(0, 55, 55, 5), 2, func(f *Figure) { f.ID, f.What, f.Unit = "active.gpu_math", "", "TFLOP/s" })},
			[]string{"PASS active.gpu_copy 2 GPUs: 55 GB/s", "PASS active.gpu_math 1 GPU: 5 TFLOP/s; there is no other of its like to compare it with"}},
		{"with whom", []Group{figured(measuring(0, 55, 55, 5), 2, func(f *Figure) { f.Other = "GPU 1" })},
			[]string{"WARN active.gpu_copy GPU 2 [0] strict 5 GB/s to it (GPU 1): 9 % of 55, the median of 3 like it"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, f := range JudgeFigures(tc.groups) {
				text := fmt.Sprint(f.Verdict, " ", f.ID)
				if f.Device != nil {
					text += fmt.Sprint(" ", f.Device, " ", f.Ranks)
				}
				if f.Strict {
					text += " strict"
				}
				got = append(got, text+" "+f.Observed)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}
