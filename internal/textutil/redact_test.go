package textutil

import (
	"fmt"
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"nothing", "python train.py --lr=1", "python train.py --lr=1"},
		{"variable", "HF_TOKEN=abc run", "HF_TOKEN=… run"},
		{"lower case", "my_secret=abc", "my_secret=…"},
		{"flag", "--api-key=abc -v", "--api-key=… -v"},
		{"flag and value", "--api-key abc -v", "--api-key … -v"},
		{"one dash", "-password  abc", "-password  …"},
		{"double quotes", `TOKEN="a b" c`, `TOKEN=… c`},
		{"escaped quotes", `"TOKEN=\"a b\" c"`, `"TOKEN=… c"`},
		{"single quotes", `TOKEN='a b' c`, `TOKEN=… c`},
		{"pieces", `TOKEN=a'b c'"d e" f`, `TOKEN=… f`},
		{"escaped blank", `TOKEN=a\ b c`, `TOKEN=… c`},
		{"twice", "A_KEY=1 B_KEY=2", "A_KEY=… B_KEY=…"},
		{"user of a URL", "http://me:pw@host/x", "http://…@host/x"},
		{"webhook", `curl -d "a" 'https://hooks.slack.com/services/T0/B1/x' -v`,
			`curl -d "a" 'https://hooks.slack.com/…' -v`},
		{"webhook in a path", "https://discord.com/api/webhooks/1/x", "https://discord.com/api/webhooks/…"},
		{"no user", "http://host/a@b", "http://host/a@b"},
		{"the safe side", "--tokenizer=gpt2 --keyboard=us", "--tokenizer=… --keyboard=…"},
		{"no value", "TOKEN= x --key", "TOKEN= x --key"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := RedactText(tc.in); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestHideValues(t *testing.T) {
	const secret = "s3cr3t-s3cr3t"
	for _, tc := range []struct{ in, want string }{
		{"no value", "no value"},
		{"key " + secret + " and " + secret, "key … and …"},
		{"it ends in " + secret[:9], "it ends in …"},
		{"it ends in " + secret[:7], "it ends in s3cr3t-"},
	} {
		if got := HideValues(tc.in, []string{"", secret}); got != tc.want {
			t.Errorf("%q becomes %q, want %q", tc.in, got, tc.want)
		}
	}
}

// FuzzRedact verifies that a secret after any other text of a command is hidden.
func FuzzRedact(f *testing.F) {
	const value = "s3cr3t"
	f.Fuzz(func(t *testing.T, before, after string) {
		if strings.Contains(before+after, value) || strings.HasSuffix(before, "\\") {
			return // the text contains it for another reason, or the next character is escaped
		}
		for _, form := range []string{"API_TOKEN=%s", "--password %s", "--secret-key=%s",
			`KEY="a %s"`, `KEY='%s'`, "https://me:%s@host/"} {
			line := before + " " + fmt.Sprintf(form, value) + " " + after
			if hidden := RedactText(line); strings.Contains(hidden, value) {
				t.Errorf("%q becomes %q", line, hidden)
			}
		}
		args := []string{before, "--token", value, "KEY=" + value, after}
		if hidden := RedactArgs(args); strings.Contains(strings.Join(hidden, " "), value) || len(hidden) != len(args) {
			t.Errorf("%q become %q", args, hidden)
		}
	})
}
