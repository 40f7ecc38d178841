package affinity

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/gpu"
)

func TestSets(t *testing.T) {
	for text, want := range map[string]string{"": "", "0": "0", "0-3,8\n": "0-3,8", "8,0-3,2": "0-3,8", "5,4": "4-5"} {
		if got, err := ParseIDSet(text); err != nil || got.String() != want {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"x", "3-1", "0-9000", "1,,2", "-1", "1-", "0-3:2/4"} {
		if got, err := ParseIDSet(text); err == nil || !strings.HasPrefix(err.Error(), "cannot read the list ") {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}

func TestKinds(t *testing.T) {
	for text, want := range map[string]string{"auto": "auto", "none": "none", "cpu": "cpu", "gpu, cpu": "cpu,gpu",
		"cpu,memory,network,gpu": "cpu,memory,network,gpu"} {
		if got, err := ParseKinds(text); err != nil || got.String() != want {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "all", "cpu,", "cpu,none", "CPU"} {
		_, err := ParseKinds(text)
		if err == nil || !strings.Contains(err.Error(), "a list of cpu,memory,network,gpu") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestEnviron(t *testing.T) {
	const amd = `BRINGUPD_BINDING={"gpus":["2","3"],"gpu_vendor":"amd"}`
	two := []string{"2", "3"}
	for _, tc := range []struct {
		name string
		p    Affinity
		set  string
		want []string
	}{
		{"all", Affinity{CPUs: IDSet{0, 1, 8}, GPUs: two}, "", []string{
			`BRINGUPD_BINDING={"cpus":"0-1,8","gpus":["2","3"]}`, "CUDA_VISIBLE_DEVICES=2,3"}},
		{"nothing", Affinity{}, "", []string{"BRINGUPD_BINDING={}"}},
		{"AMD", Affinity{GPUs: two, Vendor: gpu.AMD}, "", []string{amd, "ROCR_VISIBLE_DEVICES=2,3"}},
		{"AMD, and the job selects by HIP", Affinity{GPUs: two, Vendor: gpu.AMD}, "HIP_VISIBLE_DEVICES",
			[]string{amd, "ROCR_VISIBLE_DEVICES=2,3", "HIP_VISIBLE_DEVICES=0,1"}},
		{"Intel", Affinity{GPUs: []string{"4"}, Vendor: gpu.Intel}, "",
			[]string{`BRINGUPD_BINDING={"gpus":["4"],"gpu_vendor":"intel"}`, "ZE_AFFINITY_MASK=4"}},
	} {
		got := tc.p.Environ(func(name string) bool { return strings.Contains(tc.set, name) })
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}
