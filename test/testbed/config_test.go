package testbed

import (
	"slices"
	"strings"
	"testing"
)

// TestConfigIsChecked checks the defaults, and that invalid configurations are refused.
func TestConfigIsChecked(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  Config
		ok   bool
	}{
		{"one node", Config{Nodes: 1}, true},
		{"as many as there are addresses", Config{Nodes: maxNodes, Share: StaleSSHFS}, true},
		{"no node", Config{}, false},
		{"too many nodes", Config{Nodes: maxNodes + 1}, false},
		{"an unknown share", Config{Nodes: 1, Share: "nfs"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, err := tc.cfg.withDefaults()
			if (err == nil) != tc.ok {
				t.Fatalf("got the error %v, want one: %t", err, !tc.ok)
			}
			if tc.ok && (cfg.CPUs == 0 || cfg.Share == "" || cfg.Log == nil) {
				t.Errorf("defaults are missing in %+v", cfg)
			}
		})
	}
}

// TestSlurmConf checks the lines of slurm.conf.
func TestSlurmConf(t *testing.T) {
	s := &slot{number: 7, dir: "/beds/7"}
	for _, tc := range []struct {
		name    string
		cfg     Config
		want    []string
		notWant string
	}{
		{"nodes have addresses in the slot's subnet", Config{Nodes: 2, CPUs: 4}, []string{
			"SlurmctldHost=ctl(10.107.0.1)",
			"NodeName=n0 NodeAddr=10.107.1.1 CPUs=4 RealMemory=1000000 State=UNKNOWN",
			"NodeName=n1 NodeAddr=10.107.1.2 CPUs=4 RealMemory=1000000 State=UNKNOWN",
		}, "GresTypes"},
		{"GPUs", Config{Nodes: 1, CPUs: 8, GPUs: 8}, []string{
			"GresTypes=gpu",
			"NodeName=n0 NodeAddr=10.107.1.1 CPUs=8 RealMemory=1000000 Gres=gpu:8 State=UNKNOWN",
		}, "n1"},
		{"further lines", Config{Nodes: 1, SlurmConf: []string{"WaitTime=30"}},
			[]string{"WaitTime=30"}, "n1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conf := slurmConf(s, tc.cfg)
			lines := strings.Split(conf, "\n")
			for _, want := range tc.want {
				if !slices.Contains(lines, want) {
					t.Errorf("the line %q is missing in\n%s", want, conf)
				}
			}
			if strings.Contains(conf, tc.notWant) {
				t.Errorf("%q is in\n%s", tc.notWant, conf)
			}
		})
	}
}

// TestWithoutSlurm checks that Slurm's variables are removed.
func TestWithoutSlurm(t *testing.T) {
	env := []string{"PATH=/bin", "SLURM_JOB_ID=1", "SLURMD_NODENAME=n",
		"SBATCH_PARTITION=p", "HOME=/root"}
	if got, want := withoutSlurm(env),
		[]string{"PATH=/bin", "HOME=/root"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
