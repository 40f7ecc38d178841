package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/prose"
)

// FuzzSetting gives one of all settings a value, and what it shows once more.
func FuzzSetting(f *testing.F) {
	give := func(name, value string) (shown any, err error) {
		s := newOptions().settings().find(name)
		s.offer(byFlag, "", value)
		err = s.settle()
		return s.show(), err
	}
	for _, s := range newOptions().settings() {
		f.Add(s.name, "")
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		s := newOptions().settings().find(name)
		if s == nil {
			return
		}
		shown, err := give(name, value)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "cannot use --"+name+"="+oneLine(value)+": ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is %v", err)
			}
			return
		}
		if s.repeats {
			return
		}
		again, err := give(name, fmt.Sprint(shown))
		if err != nil || again != shown {
			t.Errorf("--%s=%s is %v, which is %v: %v", name, value, shown, again, err)
		}
	})
}

// FuzzRedact hides a secret behind whatever else a command has.
func FuzzRedact(f *testing.F) {
	const secret = "s3cr3t"
	f.Fuzz(func(t *testing.T, before, after string) {
		if strings.Contains(before+after, secret) || strings.HasSuffix(before, "\\") {
			return // it is there for another reason, or what follows is escaped
		}
		for _, form := range []string{"API_TOKEN=%s", "--password %s", "--secret-key=%s", `KEY="a %s"`, `KEY='%s'`, "https://me:%s@host/"} {
			line := before + " " + fmt.Sprintf(form, secret) + " " + after
			if hidden := prose.Redact(line); strings.Contains(hidden, secret) {
				t.Errorf("%q becomes %q", line, hidden)
			}
		}
		args := []string{before, "--token", secret, "KEY=" + secret, after}
		if hidden := prose.RedactArgs(args); strings.Contains(strings.Join(hidden, " "), secret) || len(hidden) != len(args) {
			t.Errorf("%q become %q", args, hidden)
		}
	})
}
