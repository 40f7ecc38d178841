package main

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDryRunOfWrongLaunch(t *testing.T) {
	t.Chdir(t.TempDir())
	got := call(t, nil, "--dry-run", "--setup-cmd=x")
	if got.code != 65 || !strings.Contains(got.out, "setup-cmd: x") ||
		!strings.HasPrefix(got.err, "bringupd: cannot tell which node this is") {
		t.Errorf("code %d, stdout %s, stderr %s", got.code, got.out, got.err)
	}
	untouched(t)
}

// TestDryRunPrintsOnce verifies that node 0 prints the plan or the error for all tasks of a launch,
// and that the others end with the same code.
func TestDryRunPrintsOnce(t *testing.T) {
	for _, tc := range []struct {
		name string
		env  []string
		args []string
		code int
	}{
		{"a plan", []string{"SLURM_NTASKS=2", "SLURM_STEP_TASKS_PER_NODE=1(x2)"}, nil, 0},
		{"a wrong launch", []string{"SLURM_NTASKS=4", "SLURM_STEP_TASKS_PER_NODE=2(x2)"}, nil, 65},
		{"a wrong flag", []string{"SLURM_NTASKS=2", "SLURM_STEP_TASKS_PER_NODE=1(x2)"},
			[]string{"--max-requeues=1"}, 64},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			for node := range 2 {
				env := append([]string{
					"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_NNODES=2",
					"SLURM_STEP_NODELIST=n[1-2]", "SLURM_LOCALID=0",
					fmt.Sprintf("SLURM_PROCID=%d", node), fmt.Sprintf("SLURMD_NODENAME=n%d", node+1),
				}, tc.env...)
				got := call(t, env, slices.Concat([]string{"--dry-run"}, tc.args, []string{"--", "true"})...)
				if said := got.out + got.err; got.code != tc.code || (said == "") != (node > 0) {
					t.Errorf("node %d: code %d: %s", node, got.code, said)
				}
				local := call(t, env, "local", "--nodes=1", "--dry-run", "--", "true")
				if printed(t, local); local.out == "" {
					t.Errorf("in a process of node %d: nothing is printed", node)
				}
			}
			untouched(t)
		})
	}
}

// TestDryRunRoundTrip verifies that the output of --dry-run, passed as --config, yields the same
// output.
func TestDryRunRoundTrip(t *testing.T) {
	first := call(t, nil, dry("--framework=ray", "--ray-head-args=--a={\"b\": \"c, d\"}",
		"--ray-head-args=--b", "--ray-head-args=: #",
		"--setup-cmd=a\nb # c", "--interface=yes", "--sandbox-cmd=null",
		"--sandbox-ready=exec:true", "--sandbox-require=2",
		"--gpus-per-node=0", "--check=*=warn", "--check=gpu.[a-c]*=off", "--active-check=a: b # c",
		"--active-check=\"x\"", "--gpu-check=off", "--peer-timeout=90s", "--", "sh", "-c",
		"echo 'a'\n", "-1", "")...)
	values, origins := printed(t, first)
	if values["setup-cmd"] != "a\nb # c" || origins["setup-cmd"] != "--setup-cmd" ||
		values["interface"] != "yes" || values["peer-timeout"] != "1m30s" {
		t.Errorf("the configuration is\n%s", first.out)
	}
	for _, args := range [][]string{dry(), {"local", "--dry-run", "--", "true"}} {
		defaults := call(t, nil, args...)
		printed(t, call(t, nil, append([]string{args[0], "--config=" +
			file(t, "job.yaml", defaults.out)}, args[1:]...)...))
	}
	again, _ := printed(t, call(t, nil, dry("--config="+file(t, "job.yaml", first.out))...))
	if !reflect.DeepEqual(values, again) {
		t.Errorf("\n%v\nbecame\n%v", values, again)
	}
}

func TestDryRunHidesSecrets(t *testing.T) {
	got := call(t, nil, "local", "--dry-run", "--setup-cmd=export HF_TOKEN=hidden1 API_KEY='hid "+
		"den2'; login --password hidden3",
		"--head-cmd=DB_SECRET=\"hid den4\" ./serve", "--sandbox-cmd=box http://user:hidden5@host/",
		"--sandbox-ready=exec:probe --token=hidden6",
		"--", "env", "WANDB_API_KEY=hid den7", "train", "--api-key", "hid den8",
		"--api-key=hid den9", "--lr=0.1", "sh", "-c", "X_TOKEN=hidden0 y")
	printed(t, got)
	if strings.Contains(got.out, "hid") {
		t.Errorf("a secret is shown:\n%s", got.out)
	}
	for _, part := range []string{"HF_TOKEN=", "./serve", "--lr=0.1", "login --password", "train"} {
		if !strings.Contains(got.out, part) {
			t.Errorf("%q is not shown:\n%s", part, got.out)
		}
	}
}

// TestRunRecordsItsCommand verifies that the status and the report of a run show the name of its
// job, the settings that are not defaults, and the command of its driver, without secrets.
func TestRunRecordsItsCommand(t *testing.T) {
	t.Chdir(t.TempDir())
	forget(t)
	writeFile(t, "job.yaml", "driver-grace: 9s\n")
	daemon := program(t, "--role=auto", "--log-dir=logs", "--gpu-check=off",
		"--setup-cmd=export HF_TOKEN=hidden1", "--driver-grace=10s", "--peer-timeout=20s",
		"--check=host.*=off", "--check=net.*=warn", "--ranks-per-node=1", "--pmix=off",
		"--env=PLAIN=hidden2", "--verbose", "--config=job.yaml",
		"--", "sh", "-c", "exit 0", "--lr=0.1", "--api-key=hidden3", "--token", "hidden4")
	daemon.Env = append(daemon.Env, "SLURM_JOB_ID=4711", "SLURM_STEP_ID=0", "SLURM_NTASKS=1",
		"SLURM_NNODES=1", "SLURM_PROCID=0", "SLURM_LOCALID=0",
		"SLURM_STEP_NODELIST=node0000", "SLURMD_NODENAME=node0000", "SLURM_STEP_TASKS_PER_NODE=1",
		"SLURM_JOB_NAME=train-7b")
	if out, err := daemon.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const (
		command = `sh -c 'exit 0' --lr=0.1 '--api-key=…' --token '…'`
		flags   = `--ranks-per-node=1 --log-dir=logs --config=job.yaml --verbose '--env=PLAIN=…' --pmix=off ` +
			`--gpu-check=off '--check=host.*=off' '--check=net.*=warn' --peer-timeout=20s ` +
			`'--setup-cmd=export HF_TOKEN=…'`
	)
	status := call(t, nil, "status", "logs")
	if want := "\n  job: train-7b: bringupd " + flags + " -- " + command + "\n"; !strings.Contains(status.out, want) {
		t.Errorf("the status is %swant %s", status.out, want)
	}
	report := call(t, nil, "report", "--format=json", "logs")
	for _, want := range []string{"train-7b", command, flags} {
		if !strings.Contains(report.out, `"value": "`+want+`"`) {
			t.Errorf("the report lacks %s: %s", want, report.out)
		}
	}
	all := report.out + status.out + call(t, nil, "status", "--json", "logs").out +
		contents(t, "logs/4711.0/control/job")
	if strings.Contains(all, "hidden") {
		t.Errorf("a secret is shown: %s", all)
	}
}

func TestHelp(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, same := range [][][]string{
		{{"help"}, {"--help"}, {"-h"}},
		{{"help", "run"}, {"run", "--help"}, {"run", "--help=true"}, {"--verbose", "-h"}, {"--verbose", "-h=1"}},
		{{"help", "local"}, {"local", "--help"}},
		{{"version"}, {"--version"}},
	} {
		first := call(t, nil, same[0]...)
		if first.code != 0 || first.err != "" || first.out == "" || strings.Contains(first.out, "launched-locally") {
			t.Errorf("%q: %+v", same[0], first)
		}
		for _, args := range same[1:] {
			if got := call(t, nil, args...); got != first {
				t.Errorf("%q: got %+v, want %+v", args, got, first)
			}
		}
	}
	for args, parts := range map[string][]string{
		"":      {"Usage: bringupd", "Examples:", "\n  local  ", "help SUBCOMMAND"},
		"run":   {"Usage:", "Common:", "--sandbox-require=", "BRINGUPD_LOG_DIR for"},
		"local": {"--nodes=N"},
		"codes": {"  127  ", "requeue: "},
	} {
		got := call(t, nil, append([]string{"help"}, strings.Fields(args)...)...)
		for _, part := range parts {
			if !strings.Contains(got.out, part) {
				t.Errorf("help %s lacks %q", args, part)
			}
		}
	}
	untouched(t)
}

// TestHelpOfRun compares the help of run with testdata/help-run.txt, which -update writes, and bounds
// its size.
func TestHelpOfRun(t *testing.T) {
	const path, maxFlags, maxLines = "testdata/help-run.txt", 62, 190
	command := (&invocation{}).newApp().Command("run")
	text := helpText(command)
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(contents(t, path), text); diff != "" {
		t.Errorf("the help has changed (-update accepts it): %s", diff)
	}
	if flags, lines := len(visibleSettings(command)), strings.Count(text, "\n"); flags > maxFlags || lines > maxLines {
		t.Errorf("there are %d flags on %d lines, more than %d on %d", flags, lines, maxFlags, maxLines)
	}
}

// TestHelpFitsTerminal verifies the width of all help texts, and that the overview fits a page.
func TestHelpFitsTerminal(t *testing.T) {
	app := (&invocation{}).newApp()
	texts := map[string]string{"overview": overviewText(app), codesTopic: exitCodeTable()}
	for _, command := range app.Commands {
		texts[command.Name] = helpText(command)
	}
	for _, topic := range helpTopics[1:] {
		texts[topic] = contents(t, "topics/"+topic)
	}
	for name, text := range texts {
		for line := range strings.Lines(text) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > helpWidth {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
	}
	if n := strings.Count(texts["overview"], "\n"); n > 44 {
		t.Errorf("the overview has %d lines", n)
	}
}

// TestTopics verifies that the variables and probes in the topics are documented.
func TestTopics(t *testing.T) {
	docs := contents(t, "../../docs/environment.md") + contents(t, "../../docs/ranks.md") +
		contents(t, "../../docs/services.md")
	for topic, pattern := range map[string]string{"env": `\b[A-Z][A-Z_]+_[A-Z_]+\b`, "probes": `(?m)^  ([a-z]+:\S*)`} {
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(contents(t, "topics/"+topic), -1) {
			name := match[len(match)-1]
			if name == "BRINGUPD_LOG_DIR" || strings.Contains(docs, "`"+name) || strings.Contains(docs, name+"`") {
				continue
			}
			t.Errorf("help %s has %s, which the pages lack", topic, name)
		}
	}
}
