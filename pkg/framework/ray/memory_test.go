package ray

import (
	"slices"
	"testing"

	"github.com/bringupd/bringupd/pkg/framework"
)

// TestMemoryFlags verifies that Ray offers no more memory than the job may use on its node (R3).
func TestMemoryFlags(t *testing.T) {
	const mib = 1 << 20
	for name, tc := range map[string]struct {
		memory int64
		args   []string
		want   framework.Arguments
	}{
		"all of the node": {0, nil, nil},
		"--mem=500": {500 * mib, nil,
			framework.Arguments{"--object-store-memory=157286400", "--memory=367001600"}},
		"a store of the user": {500 * mib, []string{"--object-store-memory=100000000"},
			framework.Arguments{"--memory=424288000"}},
		"both of the user": {500 * mib, []string{"--object-store-memory", "100000000", "--memory", "1"}, nil},
		"memory of the user": {500 * mib, []string{"--memory=1"},
			framework.Arguments{"--object-store-memory=157286400"}},
		"less than a store": {50 * mib, nil, framework.Arguments{"--object-store-memory=78643200"}},
	} {
		t.Run(name, func(t *testing.T) {
			node := framework.Node{RunName: "17.0", Address: "10.0.0.1", TempDir: "/tmp/x",
				GPUs: -1, MaxMemory: tc.memory}
			argv, err := Cluster{}.startArgv(node, framework.Arguments{"--head"}, tc.args)
			if err != nil {
				t.Fatal(err)
			}
			var got framework.Arguments
			extra, err := parseFlags(tc.args)
			if err != nil {
				t.Fatal(err)
			}
			for _, flag := range argv[2:] {
				name := framework.FlagName(flag)
				if (name == "--memory" || name == objectStoreFlag) && !slices.Contains(extra, flag) {
					got = append(got, flag)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("the flags are %q, want %q", got, tc.want)
			}
		})
	}
}

func TestStoreSize(t *testing.T) {
	const gb = 1_000_000_000
	for name, tc := range map[string]struct {
		memory, shm int64
		want        int64
	}{
		"a part":              {100 * gb, 50 * gb, 30 * gb},
		"no more than Ray's":  {2000 * gb, 1000 * gb, 200 * gb},
		"no more than in shm": {1000 * gb, 100 * gb, 95 * gb},
		"a small shm":         {1000 * gb, 0, 10 * gb},
		"no less than Ray's":  {gb / 10, 50 * gb, 75 << 20},
	} {
		if got := storeSize(tc.memory, tc.shm); got != tc.want {
			t.Errorf("%s: it is %d, want %d", name, got, tc.want)
		}
	}
}
