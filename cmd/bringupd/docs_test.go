package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/health"
)

// TestDocs verifies that the manual page and docs/cli.md equal the text that the program generates.
func TestDocs(t *testing.T) {
	app := (&invocation{}).newApp()
	for path, text := range map[string]string{"../../docs/cli.md": markdown(app), "../../docs/bringupd.1": manual(app)} {
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if old, err := os.ReadFile(path); err != nil || string(old) != text {
			t.Errorf("%s is stale: run go generate ./cmd/bringupd (%v)", path, err)
		}
	}
}

// about is the description of the program: the first sentence of its help.
var about, _, _ = strings.Cut(strings.ReplaceAll(overviewText(&cli.App{}), "\n", " "), "  ")

// sameAsRun reports whether run has the flag, too, with the same description.
func sameAsRun(s *config.Setting) bool {
	of := newOptions().daemonSettings().FindSetting(s.Name)
	return of != nil && !of.Hidden && of.Usage == s.Usage
}

// markdown returns docs/cli.md.
func markdown(app *cli.App) string {
	cell := strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`).Replace
	var b strings.Builder
	b.WriteString("<!-- Written by go generate ./cmd/bringupd: change the program, not this file. -->\n\n# The command line\n\n" + about + "\n")
	for _, command := range app.VisibleCommands() {
		fmt.Fprintf(&b, "\n## bringupd %s\n\n%s.\n\n    %s\n", command.Name, capital(command.Usage), strings.ReplaceAll(command.UsageText, "\n", "\n    "))
		if command.Description != "" {
			b.WriteString("\n" + command.Description + "\n")
		}
		flags := visibleSettings(command)
		if len(flags) > 0 {
			b.WriteString("\n" + describeSources(flags) + "\n")
		}
		heading, shared := "", false
		for _, s := range flags {
			if command.Name != "run" && sameAsRun(s) {
				shared = true
				continue
			}
			if s.Category != heading {
				heading = s.Category
				fmt.Fprintf(&b, "\n| %s | |\n|---|---|\n", heading)
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", s.HelpSyntax(), cell(s.HelpText()))
		}
		if shared {
			b.WriteString("\n" + sharedFlags(flags, func(name string) string { return "`--" + name + "`" }) + "\n")
		}
	}
	return b.String() + "\n## Exit codes\n\n" + codeTable()
}

// sharedFlags names the flags of a subcommand that run has, too.
func sharedFlags(flags config.List, show func(name string) string) string {
	var names []string
	for _, s := range flags {
		if sameAsRun(s) {
			names = append(names, show(s.Name))
		}
	}
	return "As with bringupd run: " + strings.Join(names, ", ") + "."
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// manual returns the manual page, in the macros of man(7).
func manual(app *cli.App) string {
	var b strings.Builder
	b.WriteString(`.\" Written by go generate ./cmd/bringupd: change the program, not this file.` + "\n")
	b.WriteString(".TH BRINGUPD 1 \"\" bringupd \"User Commands\"\n.SH NAME\nbringupd \\- start and supervise a job on all nodes of a batch allocation\n")
	b.WriteString(".SH SYNOPSIS\n.nf\n")
	for _, command := range app.VisibleCommands() {
		b.WriteString(roff(command.UsageText) + "\n")
	}
	b.WriteString(".fi\n.SH DESCRIPTION\n" + roff(about) + "\n.SH SUBCOMMANDS\n")
	for _, command := range app.VisibleCommands() {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(command.Name), roff(capital(command.Usage)+"."))
		if command.Description != "" {
			b.WriteString(".IP\n" + roff(command.Description) + "\n")
		}
	}
	for _, command := range app.VisibleCommands() {
		flags := visibleSettings(command)
		if len(flags) == 0 {
			continue
		}
		fmt.Fprintf(&b, ".SH \"OPTIONS OF %s\"\n%s\n", strings.ToUpper(command.Name), roff(describeSources(flags)))
		heading, shared := "", false
		for _, s := range flags {
			if command.Name != "run" && sameAsRun(s) {
				shared = true
				continue
			}
			if s.Category != heading {
				heading = s.Category
				fmt.Fprintf(&b, ".SS \"%s\"\n", roff(heading))
			}
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(s.HelpSyntax()), roff(s.HelpText()))
		}
		if shared {
			b.WriteString(".PP\n" + roff(sharedFlags(flags, func(name string) string { return "--" + name })) + "\n")
		}
	}
	b.WriteString(".SH \"EXIT STATUS\"\n" + roff(capital(strings.TrimPrefix(codesTitle, "Exit codes: "))) + "\n")
	for _, o := range health.OutcomeTable() {
		fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", o.Code, roff(fmt.Sprintf("%s (requeue: %s)", o.Meaning, o.Requeue)))
	}
	_, text, _ := strings.Cut(overviewText(&cli.App{}), "Examples:\n")
	text, _, _ = strings.Cut(text, "\n\n")
	b.WriteString(".SH EXAMPLES\n.nf\n" + roff(strings.TrimSuffix(text, "\n")) + "\n.fi\n.SH \"SEE ALSO\"\n.BR srun (1),\n.BR sbatch (1)\n")
	return b.String()
}

// roff escapes a text so that it is shown unchanged: a dash can be copied, and no line begins with
// a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "~", `\(ti`, "^", `\(ha`, `"`, `\(dq`, "…", `\&...`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

func TestRoff(t *testing.T) {
	if got, want := roff(".x --a='b\\'\n"+`"~"`), `\&.x \-\-a=\(aqb\e\(aq`+"\n"+`\(dq\(ti\(dq`; got != want {
		t.Errorf("got %s, not %s", got, want)
	}
}
