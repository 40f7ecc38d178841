package lifecycle

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// runScript runs a script of deploy/notify with the result of a run. A program in its PATH writes its
// arguments and its standard input to files, whose texts runScript returns.
func runScript(t *testing.T, result *record.Result, program, script string, args ...string) (argv, input string) {
	t.Helper()
	path, err := filepath.Abs("../../../deploy/notify/" + script)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	standIn := "#!/bin/sh\nprintf '%s\\n' \"$@\" >" + dir + "/argv\ncat >" + dir + "/input\n"
	//nolint:gosec // a program
	if err := os.WriteFile(filepath.Join(dir, program), []byte(standIn), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "webhook"),
		[]byte("https://hooks.example.org/secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), path, args...)
	command.Stdin = strings.NewReader(string(data))
	command.Env = envlist.With(append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"),
		"BRINGUPD_RUN=7.0", "BRINGUPD_RUN_DIR=/logs/7.0",
		"SLACK_WEBHOOK_FILE="+dir+"/webhook"), resultVariables(result))
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s has failed: %v\n%s", script, err, out)
	}
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(dir, name)) // it does not exist if the program was not called
		return string(text)
	}
	return read("argv"), read("input")
}

var (
	failed = &record.Result{Run: "7.0", Size: 4, Code: 75, Outcome: "check",
		Reason: "~! GPU 3 of <n3> has \"failed\"", BadNodes: []string{"n3", "n7"},
		Succession:     record.Succession{NextAttempt: 1},
		FailureContext: record.FailureContext{Advice: []string{"drain n3"}}}
	passed = &record.Result{Run: "7.0", Size: 4, Outcome: "driver", Reason: "the driver has ended: exit code 0"}
)

func TestMail(t *testing.T) {
	argv, input := runScript(t, failed, "mail", "mail.sh", "user@example.org")
	if want := "-s\nbringupd: run 7.0 ended with 75 (check)\nuser@example.org\n"; argv != want {
		t.Errorf("it is called with\n%swant\n%s", argv, want)
	}
	if !strings.HasPrefix(input, "  ~! GPU 3 of <n3> has \"failed\"\n  run directory: /logs/7.0\n  {") {
		t.Errorf("the mail is\n%s", input)
	}
	if argv, _ := runScript(t, passed, "mail", "mail.sh", "user@example.org"); argv != "" {
		t.Errorf("after a success it is called with %s", argv)
	}
	if argv, _ := runScript(t, passed, "mail", "mail.sh", "user@example.org",
		"always"); !strings.Contains(argv, "ended with 0 (driver)") {
		t.Errorf("after a success it is called with %s", argv)
	}
}

func TestSlack(t *testing.T) {
	argv, input := runScript(t, failed, "curl", "slack.sh")
	url, data, _ := strings.Cut(input, "\n")
	if url != "url = \"https://hooks.example.org/secret\"" || strings.Contains(argv, "secret") ||
		strings.Contains(argv, "GPU") {
		t.Errorf("the address and the message are passed by %q, %q", argv, input)
	}
	message := slackMessage(t, data)
	want := "*Run 7.0* on 4 nodes ended with 75 (check): ~! GPU 3 of &lt;n3&gt; has " +
		"\"failed\"\nNodes to avoid: n3, n7\nAttempt 2 follows.\nNext: drain n3"
	if message != want {
		t.Errorf("the message is\n%s\nwant\n%s", message, want)
	}
	if argv, _ := runScript(t, passed, "curl", "slack.sh"); argv != "" {
		t.Errorf("after a success it is called with %s", argv)
	}
	_, input = runScript(t, passed, "curl", "slack.sh", "always")
	_, data, _ = strings.Cut(input, "\n")
	if got := slackMessage(t, data); got != "*Run 7.0* on 4 nodes ended with 0 (driver): the "+
		"driver has ended: exit code 0" {
		t.Errorf("after a success the message is %s", got)
	}
}

// slackMessage returns the text of the message in a line of a file of curl's options, which quotes
// backslashes and quotation marks as JSON does.
func slackMessage(t *testing.T, line string) string {
	t.Helper()
	quoted, found := strings.CutPrefix(line, "data = ")
	var data string
	var message struct{ Text string }
	err := json.Unmarshal([]byte(quoted), &data)
	if err == nil {
		err = json.Unmarshal([]byte(data), &message)
	}
	if err != nil || !found {
		t.Fatalf("the message is %q: %v", line, err)
	}
	return message.Text
}
