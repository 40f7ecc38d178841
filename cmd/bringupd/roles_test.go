package main

import (
	"os"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/roles/rolefile"
)

func TestRoles(t *testing.T) {
	t.Chdir(t.TempDir())
	const text = "log-dir: /tmp\nroles:\n- {name: judge, nodes: 2, command: serve}\n- {name: trainer, nodes: rest, ranks-per-node: gpu, primary: true, command: train}\n"
	for name, content := range map[string]string{"job.yaml": text, "wrong.yaml": "log-dri: /tmp\nroles:\n- {name: a, nodes: 1, command: c}\n", "two.yaml": "roles:\n- {name: a, nodes: 1, command: c, gpu: 2}\n- {name: b}\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{"the placement", []string{"--dry-run", "job.yaml", "--nodes=4", "--gpus-per-node=2"}, []string{"judge    1         n1    1          0-1          http auto\n", "start: judge → trainer\n"}},
		{"a script", []string{"--sbatch=job.yaml", "--nodes=4"}, []string{"#!/bin/bash\n#SBATCH --job-name=job\n", "#SBATCH --nodes=4\n", "bringupd --config=\"$roles\""}},
		{"the schema", []string{"--schema"}, []string{string(rolefile.Schema())}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := call(t, nil, append([]string{"roles"}, tc.args...)...)
			for _, part := range tc.want {
				if got.code != 0 || !strings.Contains(got.out, part) {
					t.Errorf("got %+v, want %s", got, part)
				}
			}
		})
	}
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"no run", nil, []string{"cannot find a run in "}},
		{"no role to watch", []string{"--watch"}, []string{"cannot watch the roles of a run: give one of them"}},
		{"an unknown placeholder", []string{"--format=%x"}, []string{"cannot use --format=%x: after % there must be h (host)"}},
		{"two", []string{"--schema", "--sbatch=job.yaml"}, []string{"cannot show roles: give one of"}},
		{"a wrong file", []string{"--dry-run=wrong.yaml", "--nodes=4"}, []string{`cannot use wrong.yaml:1: there is no key "log-dri"; did you mean log-dir?`}},
		{"no file", []string{"--dry-run=none.yaml", "--nodes=4"}, []string{"cannot read the roles: open none.yaml: no such file or directory"}},
		{"no nodes", []string{"--dry-run=job.yaml"}, []string{"cannot place the roles: this is no job: give the nodes"}},
		{"too few nodes", []string{"--dry-run=job.yaml", "--nodes=2", "--gpus-per-node=2"}, []string{"cannot place the roles: judge needs 2 nodes, trainer the rest, at least 1: 3 of 2"}},
		{"no number", []string{"--dry-run=job.yaml", "--nodes=0"}, []string{"cannot use --nodes=0: give whole numbers from 1 to 1000000, separated by commas"}},
	} {
		t.Run(tc.name, func(t *testing.T) { refused(t, call(t, nil, append([]string{"roles"}, tc.args...)...), 64, tc.says...) })
	}
	got := call(t, nil, "roles", "--dry-run=two.yaml", "--nodes=4")
	want := `bringupd: cannot use two.yaml:2: role a: there is no key "gpu"; did you mean gpus?
cannot use two.yaml:3: role b: nodes is missing`
	if got.code != 64 || !strings.HasPrefix(got.err, want) {
		t.Errorf("got %+v, want %s", got, want)
	}
}
