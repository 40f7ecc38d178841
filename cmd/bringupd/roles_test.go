package main

import (
	"os"
	"strings"
	"testing"
)

func TestRoles(t *testing.T) {
	t.Chdir(t.TempDir())
	const text = "log-dir: /tmp\nroles:\n- {name: judge, nodes: 2, command: serve}\n- {name: " +
		"trainer, nodes: rest, ranks-per-node: gpu, primary: true, command: train}\n"
	for name, content := range map[string]string{"job.yaml": text,
		"wrong.yaml": "log-dri: /tmp\nroles:\n- {name: a, nodes: 1, command: c}\n",
		"two.yaml": "spares: x\nroles:\n- {name: a, nodes: 1, command: c, gpu: 2}\n- {name: " +
			"b}\n", "setting.yaml": "join-timeout: 5\nroles:\n- {name: a, nodes: 1, " +
			"command: c}\n", "none-given.yaml": "# nothing\n", "torchrun.yaml": "roles:\n- {name: a, " +
			"nodes: all, nodes-per-instance: all, ranks-per-node: 1, command: torchrun t.py}\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{"the placement", []string{"--dry-run", "job.yaml", "--nodes=4", "--gpus-per-node=2"},
			[]string{"judge    1         n1    1          0-1          http auto\n", "start: judge → trainer\n"}},
		{"a script", []string{"--sbatch=job.yaml", "--nodes=4"},
			[]string{"#!/bin/bash\n#SBATCH --job-name=job\n", "#SBATCH --nodes=4\n", "bringupd --config=\"$roles\""}},
		{"a failure", []string{"--dry-run=job.yaml", "--nodes=4", "--gpus-per-node=2",
			"--fail=judge.1"}, []string{"judge.1 on n1: a process fails.\n", "The run ends with the code 77.\n"}},
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
	for _, tc := range []refusal{
		{"roles", "find a run in"},
		{"roles --watch", "watch the roles of a run: give one of them"},
		{"roles job.yaml", "give --dry-run=job.yaml"},
		{"roles --fail=node:1", "give the file with the roles"},
		{"roles --dry-run=job.yaml --nodes=4 --gpus-per-node=2 --fail=x.1", "--fail=x.1"},
		{"roles --format=%x", "--format=%x: after % there must be h (host)"},
		{"roles --dry-run=job.yaml --sbatch=job.yaml", "show roles: give one of"},
		{"roles --dry-run=wrong.yaml --nodes=4", `wrong.yaml:1 … "log-dri"; did you mean log-dir?`},
		{"roles --dry-run=setting.yaml --nodes=4", "setting.yaml:1 (join-timeout: 5)"},
		{"roles --sbatch=none-given.yaml --nodes=4", "none-given.yaml … give a list of roles"},
		{"roles --dry-run=none.yaml --nodes=4", "open none.yaml"},
		{"roles --dry-run=torchrun.yaml --nodes=2", "role a (line 2) … ranks-per-node: gpu, command: python t.py"},
		{"roles --dry-run=job.yaml", "place the roles: this is no job: give the nodes"},
		{"roles --dry-run=job.yaml --nodes=2 --gpus-per-node=2", "judge needs 2 nodes … 3 nodes in all"},
	} {
		t.Run(tc.args, func(t *testing.T) { tc.check(t, "") })
	}
	// A run refuses the file with the same words.
	want := `bringupd: cannot use two.yaml:1: spares is "x": give a whole number from 0 to 1000000
cannot use two.yaml:3: role a: there is no key "gpu"; did you mean gpus?
cannot use two.yaml:4: role b: nodes is missing`
	for _, args := range [][]string{{"roles", "--dry-run=two.yaml", "--nodes=4"}, {"local", "--config=two.yaml"}} {
		if got := call(t, nil, args...); got.code != 64 || !strings.HasPrefix(got.err, want) {
			t.Errorf("%v: got %+v, want %s", args, got, want)
		}
	}
}
