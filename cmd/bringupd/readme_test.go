package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/health"
)

var update = flag.Bool("update", false, "write anew what is written from the program")

// The README's tables of flags and of exit codes are those of the program.
func TestREADME(t *testing.T) {
	const path = "../../README.md"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for name, table := range map[string]string{"flags": flagTable(), "codes": codeTable()} {
		begin := "<!-- " + name + ": written by go test ./cmd/bringupd -run README -update -->\n"
		head, rest, ok := strings.Cut(text, begin)
		old, tail, ended := strings.Cut(rest, "<!-- end of "+name+" -->")
		if !ok || !ended {
			t.Fatalf("%s has no place for its %s: %s…", path, name, begin)
		}
		if old != table && !*update {
			t.Errorf("the %s in %s are not the program's: run go test ./cmd/bringupd -run README -update", name, path)
		}
		text = head + begin + table + "<!-- end of " + name + " -->" + tail
	}
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func flagTable() string {
	var b strings.Builder
	heading := ""
	for _, s := range newOptions().settings() {
		if s.hidden {
			continue
		}
		if s.category != heading {
			heading = s.category
			fmt.Fprintf(&b, "\n| %s | |\n|---|---|\n", heading)
		}
		meaning := strings.ReplaceAll(s.usage+s.defaultText(), unbroken, " ")
		fmt.Fprintf(&b, "| `%s` | %s |\n", s.String(), strings.ReplaceAll(meaning, "|", `\|`))
	}
	return b.String() + "\n"
}

func codeTable() string {
	var b strings.Builder
	b.WriteString("\n| code | word | meaning | requeue? |\n|---|---|---|---|\n")
	b.WriteString("| the driver's own | `" + health.Driven + "` | the driver ran and ended; 128+n where signal n ended it | your call |\n")
	for _, o := range health.Outcomes() {
		fmt.Fprintf(&b, "| %d | `%s` | %s | %s |\n", o.Code, o.Word, o.Meaning, o.Requeue)
	}
	return b.String() + "\n"
}
